//go:build openblas

// Gates of one row. Compiled with -Ofast, so that the loops use the vector
// forms of expf in the C library.
#ifndef PEERS_OPENBLAS_GATES_H
#define PEERS_OPENBLAS_GATES_H

// out is the new h and then the new c; gates are i, f, g, o.
void ob_lstm_gates(float *restrict out, const float *restrict gates, const float *restrict c, int units);

// out is the new h; input and recurrent have r, z, n.
void ob_gru_gates(float *restrict out, const float *restrict input, const float *restrict recurrent,
               const float *restrict h, int units);

#endif
