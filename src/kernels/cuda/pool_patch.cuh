/* Gradient of 2-d max pooling, channels last, for windows of K x K taps S apart, K at most 2 S: a
 * kernel apart from the types of elements, so that a test can run it on the host.
 *
 * A thread takes N channels of a patch of S x S positions, which the same outputs cover: at most
 * two a side, each of which it reads once, all at a time. Patch a has positions S a - low … S a -
 * low + S - 1, and outputs a - 1 and a reach it (K <= S: a alone). A position adds up its outputs
 * in their order. */
#ifndef STATOR_KERNELS_CUDA_POOL_PATCH_CUH
#define STATOR_KERNELS_CUDA_POOL_PATCH_CUH

struct pool_patch {
    int c; /* vectors of channels */
    int in[2], out[2], low[2], patches[2];
};

/* E: type, real(type), rounded(float). P: a vector of N elements, I: of N indices; members v[N]. */
template <class E, int N, int K, int S, class P, class I>
__global__ void max_pool_grad_patch(pool_patch w, P *dx, const P *dy, const I *index, unsigned total) {
    enum { D = (K + S - 1) / S };
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= total) return;
    const int channel = (int)(i % (unsigned)w.c), rest = (int)(i / (unsigned)w.c);
    const int right = rest % w.patches[1], down = rest / w.patches[1] % w.patches[0];
    const int image = rest / w.patches[1] / w.patches[0];
    float sum[S][S][N];
    P slope[D][D];
    I named[D][D];
    bool there[D][D];
#pragma unroll
    for (int a = 0; a < D; a++)
#pragma unroll
        for (int b = 0; b < D; b++) { /* what is outside reads the first element, and counts
                                       * nowhere */
            const int o = down - (D - 1) + a, p = right - (D - 1) + b;
            there[a][b] = o >= 0 && o < w.out[0] && p >= 0 && p < w.out[1];
            const int at = there[a][b] ? ((image * w.out[0] + o) * w.out[1] + p) * w.c + channel : 0;
            slope[a][b] = dy[at];
            named[a][b] = index[at];
        }
#pragma unroll
    for (int r = 0; r < S; r++)
#pragma unroll
        for (int q = 0; q < S; q++) {
            const int y = S * down + r - w.low[0], x = S * right + q - w.low[1];
#pragma unroll
            for (int v = 0; v < N; v++) sum[r][q][v] = 0;
#pragma unroll
            for (int a = 0; a < D; a++)
#pragma unroll
                for (int b = 0; b < D; b++) {
                    if (r + S * (D - 1 - a) >= K || q + S * (D - 1 - b) >= K) continue;
#pragma unroll
                    for (int v = 0; v < N; v++)
                        sum[r][q][v] += there[a][b] && named[a][b].v[v] == y * w.in[1] + x
                                            ? E::real(slope[a][b].v[v])
                                            : 0.f;
                }
            if (y < 0 || y >= w.in[0] || x < 0 || x >= w.in[1]) continue;
            P result;
#pragma unroll
            for (int v = 0; v < N; v++) result.v[v] = E::rounded(sum[r][q][v]);
            dx[((image * w.in[0] + y) * w.in[1] + x) * w.c + channel] = result;
        }
}

#endif
