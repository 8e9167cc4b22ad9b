//go:build openblas

#include "gates.h"

#include <math.h>

static inline float sigmoid(float x) { return 1 / (1 + expf(-x)); }

static inline float hyperbolic_tangent(float x) { return 2 / (1 + expf(-2 * x)) - 1; }

void ob_lstm_gates(float *restrict out, const float *restrict gates, const float *restrict c, int units) {
  const float *i = gates, *f = gates + units, *g = gates + 2 * units, *o = gates + 3 * units;
  for (int j = 0; j < units; j++) {
    float next = sigmoid(f[j]) * c[j] + sigmoid(i[j]) * hyperbolic_tangent(g[j]);
    out[units + j] = next;
    out[j] = sigmoid(o[j]) * hyperbolic_tangent(next);
  }
}

void ob_gru_gates(float *restrict out, const float *restrict input, const float *restrict recurrent,
               const float *restrict h, int units) {
  const float *ir = input, *iz = input + units, *in = input + 2 * units;
  const float *hr = recurrent, *hz = recurrent + units, *hn = recurrent + 2 * units;
  for (int j = 0; j < units; j++) {
    float reset = sigmoid(ir[j] + hr[j]), update = sigmoid(iz[j] + hz[j]);
    float candidate = hyperbolic_tangent(in[j] + reset * hn[j]);
    out[j] = (1 - update) * candidate + update * h[j];
  }
}
