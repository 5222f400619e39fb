// How fast this machine can go at all: the same questions, answered by plain C without checks and without exact sums.
//
// The loops are written so that gcc vectorises them: `omp simd` permits it to reorder the sums, -fno-trapping-math to
// compute both sides of a choice. Nothing is specific to one processor. Rows: scores float32 in [0, 1], labels uint8 0 or 1.

#include <math.h>
#include <stdint.h>

#define BLOCK 2048
#define BUCKETS 65537 // 32 octaves a side with 1,024 buckets each, and one for 1/2
#define LOWEST (94 << 10) // the leading bits of 2^-33: what is smaller falls in the first bucket
#define EPSILON 1.1920929e-7f

typedef union {
    float value;
    int32_t bits;
} word;

// The leading bits of min(p, 1 - p), mirrored above 1/2.
static inline int32_t bucket(float p) {
    float q = 1.0f - p;
    word z = {.value = p < q ? p : q};
    int32_t b = (z.bits >> 13) - LOWEST;
    b = b > 0 ? b : 0;
    return p > 0.5f ? BUCKETS - 1 - b : b;
}

// Two passes: a vector loop writes the counters' indices of a block to L1, a scalar loop bumps them.
void fold_histogram(const float *score, const uint8_t *label, int64_t rows, int64_t *counts) {
    uint32_t index[BLOCK];
    for (int64_t start = 0; start < rows; start += BLOCK) {
        const float *s = score + start;
        const uint8_t *y = label + start;
        int n = rows - start < BLOCK ? (int)(rows - start) : BLOCK;
        for (int i = 0; i < n; i++) index[i] = (uint32_t)bucket(s[i]) + (uint32_t)y[i] * BUCKETS;
        int i = 0;
        for (; i + 8 <= n; i += 8) {
#pragma GCC unroll 8
            for (int j = 0; j < 8; j++) counts[index[i + j]]++;
        }
        for (; i < n; i++) counts[index[i]]++;
    }
}

// The probability that the model gave to what happened.
static inline float likelihood(float p, uint8_t y) {
    float q = y ? p : 1.0f - p;
    return q > EPSILON ? q : EPSILON;
}

// log of a normal float: Cephes' polynomial on [sqrt(1/2), sqrt(2)), about one ulp.
static inline float log_polynomial(float x) {
    word w = {.value = x};
    int32_t e = (w.bits - 0x3f3504f3) >> 23;
    w.bits -= e * (1 << 23);
    float f = w.value - 1.0f, z = f * f;
    float p = 7.0376836292e-2f;
    p = p * f - 1.1514610310e-1f;
    p = p * f + 1.1676998740e-1f;
    p = p * f - 1.2420140846e-1f;
    p = p * f + 1.4249322787e-1f;
    p = p * f - 1.6668057665e-1f;
    p = p * f + 2.0000714765e-1f;
    p = p * f - 2.4999993993e-1f;
    p = p * f + 3.3333331174e-1f;
    return (float)e * 0.69314718056f + (f + (p * f * z - 0.5f * z));
}

double log_loss_polynomial(const float *score, const uint8_t *label, int64_t rows) {
    double total = 0;
#pragma omp simd reduction(- : total)
    for (int64_t i = 0; i < rows; i++) total -= (double)log_polynomial(likelihood(score[i], label[i]));
    return total;
}

double log_loss_libm(const float *score, const uint8_t *label, int64_t rows) {
    double total = 0;
    for (int64_t i = 0; i < rows; i++) total -= (double)logf(likelihood(score[i], label[i]));
    return total;
}

double sum_inexact(const float *score, int64_t rows) {
    double total = 0;
#pragma omp simd reduction(+ : total)
    for (int64_t i = 0; i < rows; i++) total += (double)score[i];
    return total;
}

// sums: absolute errors, squared errors.
void errors_inexact(const double *target, const double *predicted, int64_t rows, double *sums) {
    double absolute = 0, squared = 0;
#pragma omp simd reduction(+ : absolute, squared)
    for (int64_t i = 0; i < rows; i++) {
        double d = predicted[i] - target[i];
        absolute += fabs(d);
        squared += d * d;
    }
    sums[0] = absolute;
    sums[1] = squared;
}

// counts: predicted positives, positives, true positives.
void binary_counts(const float *score, const uint8_t *label, int64_t rows, float threshold, int64_t *counts) {
    for (int64_t start = 0; start < rows; start += BLOCK) {
        int n = rows - start < BLOCK ? (int)(rows - start) : BLOCK;
        int32_t predicted = 0, positive = 0, both = 0;
#pragma omp simd reduction(+ : predicted, positive, both)
        for (int i = 0; i < n; i++) {
            int32_t above = score[start + i] >= threshold, y = label[start + i];
            predicted += above;
            positive += y;
            both += above & y;
        }
        counts[0] += predicted;
        counts[1] += positive;
        counts[2] += both;
    }
}

// Two passes as for the histogram: which pair of true and predicted class each row is, then the counters.
void confusion(const int64_t *truth, const int64_t *predicted, int64_t rows, int64_t classes, int64_t *counts) {
    uint32_t index[BLOCK];
    for (int64_t start = 0; start < rows; start += BLOCK) {
        const int64_t *t = truth + start, *p = predicted + start;
        int n = rows - start < BLOCK ? (int)(rows - start) : BLOCK;
        for (int i = 0; i < n; i++) index[i] = (uint32_t)t[i] * (uint32_t)classes + (uint32_t)p[i];
        int i = 0;
        for (; i + 8 <= n; i += 8) {
#pragma GCC unroll 8
            for (int j = 0; j < 8; j++) counts[index[i + j]]++;
        }
        for (; i < n; i++) counts[index[i]]++;
    }
}
