//go:build openblas

#include "step.h"

#include <cblas.h>
#include <stdlib.h>
#include <string.h>

#include "gates.h"

static float *numbers(size_t n) {
  void *p = NULL;
  return posix_memalign(&p, 64, n * sizeof(float)) == 0 ? p : NULL;
}

static float *copy(const float *from, size_t n) {
  float *to = numbers(n);
  if (to != NULL) memcpy(to, from, n * sizeof(float));
  return to;
}

// Puts a matrix of outputs by inputs into one of inputs by outputs.
static void transpose(float *to, const float *from, int outputs, int inputs) {
  for (int o = 0; o < outputs; o++)
    for (int i = 0; i < inputs; i++) to[(size_t)i * outputs + o] = from[(size_t)o * inputs + i];
}

static int gate_count(enum ob_step_kind kind) { return kind == OB_STEP_LSTM ? 4 : kind == OB_STEP_GRU ? 3 : 1; }

// Inputs of the first product.
static int width(const struct ob_step_model *m) { return m->kind == OB_STEP_LSTM ? m->inputs + m->units : m->inputs; }

struct ob_step_model *ob_step_load(enum ob_step_kind kind, int inputs, int units, const float *weight,
                             const float *recurrent, const float *bias, const float *recurrent_bias) {
  struct ob_step_model *m = calloc(1, sizeof *m);
  if (m == NULL) return NULL;
  m->kind = kind, m->inputs = inputs, m->units = units;
  size_t n = (size_t)gate_count(kind) * units;
  m->weight = numbers(n * width(m));
  m->bias = copy(bias, n);
  if (kind == OB_STEP_GRU) {
    m->recurrent = numbers(n * units);
    m->recurrent_bias = copy(recurrent_bias, n);
  }
  if (!m->weight || !m->bias || (kind == OB_STEP_GRU && (!m->recurrent || !m->recurrent_bias))) {
    ob_step_unload(m);
    return NULL;
  }
  transpose(m->weight, weight, n, inputs);
  if (kind == OB_STEP_LSTM) transpose(m->weight + n * inputs, recurrent, n, units);
  if (kind == OB_STEP_GRU) transpose(m->recurrent, recurrent, n, units);
  return m;
}

void ob_step_unload(struct ob_step_model *m) {
  free(m->weight), free(m->bias), free(m->recurrent), free(m->recurrent_bias);
  free(m);
}

struct ob_step_call *ob_step_bind(const struct ob_step_model *m, int rows, const float *x, const float *h, const float *c) {
  struct ob_step_call *b = calloc(1, sizeof *b);
  if (b == NULL) return NULL;
  b->model = m, b->rows = rows;
  size_t n = (size_t)rows * m->units, gates = n * gate_count(m->kind);
  int ok = 1;
  switch (m->kind) {
    case OB_STEP_PRODUCT:
      ok = (b->x = copy(x, (size_t)rows * m->inputs)) && (b->out = numbers(n));
      break;
    case OB_STEP_LSTM:
      ok = (b->in_x = copy(x, (size_t)rows * m->inputs)) && (b->in_h = copy(h, n)) && (b->c = copy(c, n)) &&
           (b->x = numbers((size_t)rows * width(m))) && (b->gates = numbers(gates)) && (b->out = numbers(2 * n));
      break;
    case OB_STEP_GRU:
      ok = (b->x = copy(x, (size_t)rows * m->inputs)) && (b->h = copy(h, n)) && (b->gates = numbers(gates)) &&
           (b->recurrent_gates = numbers(gates)) && (b->out = numbers(n));
      break;
  }
  if (ok) return b;
  ob_step_unbind(b);
  return NULL;
}

void ob_step_unbind(struct ob_step_call *b) {
  free(b->x), free(b->h), free(b->c), free(b->in_x), free(b->in_h);
  free(b->gates), free(b->recurrent_gates), free(b->out);
  free(b);
}

// y = x W + bias.
static void product(float *y, const float *x, const float *weight, const float *bias, int rows, int inputs, int outputs) {
  for (int r = 0; r < rows; r++) memcpy(y + (size_t)r * outputs, bias, outputs * sizeof(float));
  if (rows == 1)
    cblas_sgemv(CblasRowMajor, CblasTrans, inputs, outputs, 1, weight, outputs, x, 1, 1, y, 1);
  else
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, rows, outputs, inputs, 1, x, inputs, weight, outputs, 1, y, outputs);
}

void ob_step_run(struct ob_step_call *b) {
  const struct ob_step_model *m = b->model;
  int n = m->units, gates = gate_count(m->kind) * n;
  switch (m->kind) {
    case OB_STEP_PRODUCT:
      product(b->out, b->x, m->weight, m->bias, b->rows, m->inputs, n);
      break;
    case OB_STEP_LSTM:
      for (int r = 0; r < b->rows; r++) {
        float *row = b->x + (size_t)r * width(m);
        memcpy(row, b->in_x + (size_t)r * m->inputs, m->inputs * sizeof(float));
        memcpy(row + m->inputs, b->in_h + (size_t)r * n, n * sizeof(float));
      }
      product(b->gates, b->x, m->weight, m->bias, b->rows, width(m), gates);
      for (int r = 0; r < b->rows; r++)
        ob_lstm_gates(b->out + (size_t)r * 2 * n, b->gates + (size_t)r * gates, b->c + (size_t)r * n, n);
      break;
    case OB_STEP_GRU:
      product(b->gates, b->x, m->weight, m->bias, b->rows, m->inputs, gates);
      product(b->recurrent_gates, b->h, m->recurrent, m->recurrent_bias, b->rows, n, gates);
      for (int r = 0; r < b->rows; r++)
        ob_gru_gates(b->out + (size_t)r * n, b->gates + (size_t)r * gates, b->recurrent_gates + (size_t)r * gates,
                  b->h + (size_t)r * n, n);
      break;
  }
}
