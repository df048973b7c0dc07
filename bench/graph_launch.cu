// Processor time of launching a recorded graph, by what is in it: one JSON line a variant.
//
//   nvcc -arch=sm_90a -O2 bench/graph_launch.cu -o graph_launch && ./graph_launch
//
// launch_us    of the launching thread, a launch;  process_us   of the process, a launch with what waits for it
// wait_each    1: each launch is waited for, asleep, before the next
#include <cuda_runtime.h>
#include <stdio.h>
#include <time.h>
#define OK(e)                                              \
    do {                                                   \
        cudaError_t r = (e);                               \
        if (r != cudaSuccess) {                            \
            printf("%s: %s\n", #e, cudaGetErrorString(r)); \
            return 1;                                      \
        }                                                  \
    } while (0)
__global__ void spin(long long ns, int *p) {
    long long b = clock64();
    while (clock64() - b < ns * 2) {
    }
    if (p && ns < 0) *p = 1;
}
struct Big {
    char b[2000];
};
__global__ void big(const __grid_constant__ Big a, int *p) {
    if (p && a.b[5] == 77) *p = 1;
    long long b = clock64();
    while (clock64() - b < 40000) {
    }
}
static double cpu() {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1e6 + t.tv_nsec * 1e-3;
}
static double pcpu() {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec * 1e6 + t.tv_nsec * 1e-3;
}
int main() {
    cudaStream_t s, s2;
    int *p;
    void *host;
    cudaEvent_t e, f, timing;
    OK(cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync));
    OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    OK(cudaStreamCreateWithFlags(&s2, cudaStreamNonBlocking));
    OK(cudaMalloc(&p, 1 << 20));
    OK(cudaMallocHost(&host, 1 << 20));
    OK(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
    OK(cudaEventCreateWithFlags(&f, cudaEventDisableTiming));
    OK(cudaEventCreate(&timing));
    const char *names[] = {"kernels",
                           "kernels + memset in the middle",
                           "kernels + memcpy D2H at the end",
                           "kernels with 2000 bytes of arguments",
                           "kernels + a fork and join",
                           "kernels + event record node"};
    for (int n = 200; n <= 800; n *= 2)
        for (int v = 0; v < 6; v++)
            for (int sync = 0; sync < 2; sync++) {
                cudaGraph_t g;
                cudaGraphExec_t x;
                OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
                for (int i = 0; i < n; i++) {
                    if (v == 3) {
                        Big a;
                        void *args[] = {&a, &p};
                        OK(cudaLaunchKernel((const void *)big, dim3(1), dim3(32), args, 0, s));
                    } else
                        spin<<<1, 32, 0, s>>>(20000, p);
                    if (v == 1 && i == n / 2) OK(cudaMemsetAsync(p, 0, 1 << 16, s));
                    if (v == 4 && i == n / 2) {
                        OK(cudaEventRecord(e, s));
                        OK(cudaStreamWaitEvent(s2, e, 0));
                        spin<<<1, 32, 0, s2>>>(100, p);
                        OK(cudaEventRecord(f, s2));
                        OK(cudaStreamWaitEvent(s, f, 0));
                    }
                    if (v == 5 && i == n / 2)
                        OK(cudaEventRecordWithFlags(timing, s, cudaEventRecordExternal));
                }
                if (v == 2) OK(cudaMemcpyAsync(host, p, 4, cudaMemcpyDeviceToHost, s));
                OK(cudaStreamEndCapture(s, &g));
                OK(cudaGraphInstantiate(&x, g, 0));
                OK(cudaGraphUpload(x, s));
                for (int i = 0; i < 3; i++) OK(cudaGraphLaunch(x, s));
                OK(cudaStreamSynchronize(s));
                double launch = 0, all = pcpu();
                for (int i = 0; i < 20; i++) {
                    double b = cpu();
                    OK(cudaGraphLaunch(x, s));
                    launch += cpu() - b;
                    if (sync || i % 4 == 3) OK(cudaStreamSynchronize(s));
                }
                OK(cudaStreamSynchronize(s));
                all = pcpu() - all;
                printf(
                    "{\"what\": \"%s\", \"nodes\": %d, \"wait_each\": %d, \"launch_us\": %.1f, "
                    "\"process_us\": %.1f}\n",
                    names[v], n, sync, launch / 20, all / 20);
                OK(cudaGraphExecDestroy(x));
                OK(cudaGraphDestroy(g));
            }
}
