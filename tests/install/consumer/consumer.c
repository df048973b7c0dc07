/* The smallest program against the installed library: prints the version it runs with. C and C++.
 */
#include <stator/stator.h>
#include <stdio.h>

int main(void) {
    return puts(stator_version()) < 0;
}
