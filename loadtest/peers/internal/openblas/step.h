//go:build openblas

// Products and recurrent steps with OpenBLAS, in float32.
#ifndef PEERS_OPENBLAS_STEP_H
#define PEERS_OPENBLAS_STEP_H

enum ob_step_kind { OB_STEP_PRODUCT, OB_STEP_LSTM, OB_STEP_GRU };

// Weights, stored inputs by outputs. For an LSTM both matrices are one, over
// [x; h]; a GRU has the recurrent one apart.
struct ob_step_model {
  enum ob_step_kind kind;
  int inputs, units;
  float *weight, *bias;
  float *recurrent, *recurrent_bias; // of a GRU
};

// A batch with its scratch.
struct ob_step_call {
  const struct ob_step_model *model;
  int rows;
  float *x, *h, *c; // x is the input of the first product, so [x; h] for an LSTM
  float *in_x, *in_h; // where an LSTM takes x and h from
  float *gates, *recurrent_gates;
  float *out; // rows by units; by 2 units, h then c, for an LSTM
};

// Both return NULL when there is no memory.
struct ob_step_model *ob_step_load(enum ob_step_kind kind, int inputs, int units, const float *weight,
                             const float *recurrent, const float *bias, const float *recurrent_bias);
struct ob_step_call *ob_step_bind(const struct ob_step_model *m, int rows, const float *x, const float *h, const float *c);
void ob_step_run(struct ob_step_call *b);
void ob_step_unbind(struct ob_step_call *b);
void ob_step_unload(struct ob_step_model *m);

#endif
