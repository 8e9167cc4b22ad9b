//go:build onednn

#include "step.h"

#include <omp.h>

#include <algorithm>
#include <cstdio>
#include <dnnl.hpp>
#include <string>
#include <unordered_map>
#include <vector>

#if DNNL_VERSION_MAJOR != 2
#error "this is written for oneDNN 2"
#endif

using dnnl::memory;
using dims = memory::dims;
using tag = memory::format_tag;
using type = memory::data_type;
using arguments = std::unordered_map<int, memory>;

struct dn_step_model {
  dn_step_kind kind;
  int inputs, units;
  type data;                                       // of weights and inputs
  std::vector<float> weight, recurrent, bias;      // gates in the library's order
};

struct dn_step_call {
  const dn_step_model *model;
  int rows;
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::vector<std::pair<memory, memory>> converted; // float32 inputs and what the primitive takes
  dnnl::primitive primitive;
  arguments args;
  memory out, out_c;
  std::string detail;

  dn_step_call(const dn_step_model *m, int rows) : model(m), rows(rows) {}

  // Returns float32 numbers in memory of the given layout.
  memory pack(const memory::desc &want, const dims &shape, tag layout, const float *from) {
    memory plain({shape, type::f32, layout}, engine, const_cast<float *>(from)), packed(want, engine);
    dnnl::reorder(plain, packed).execute(stream, plain, packed);
    stream.wait();
    return packed;
  }

  // Returns memory for an input of the primitive, converted at each run unless
  // it is float32.
  memory input(const memory::desc &want, const dims &shape, tag layout, const float *from) {
    memory plain = pack({shape, type::f32, layout}, shape, layout, from);
    if (want == plain.get_desc()) return plain;
    memory taken(want, engine);
    converted.emplace_back(plain, taken);
    return taken;
  }

  void product(const float *x);
  void lstm(const float *x, const float *h, const float *c);
  void gru(const float *x, const float *h);
  void run();
};

void dn_step_call::product(const float *x) {
  const auto *m = model;
  dims xs{rows, m->inputs}, ws{m->inputs, m->units}, ys{rows, m->units}, bs{1, m->units};
  memory::desc bias(bs, type::f32, tag::ab), y(ys, type::f32, tag::ab);
  dnnl::matmul::desc d({xs, m->data, tag::ab}, {ws, m->data, tag::any}, bias, y);
  dnnl::matmul::primitive_desc pd(d, engine);
  detail = pd.impl_info_str();
  out = memory(y, engine);
  // Outputs by inputs is the transpose of what a matmul has.
  args = {{DNNL_ARG_SRC, input(pd.src_desc(), xs, tag::ab, x)},
          {DNNL_ARG_WEIGHTS, pack(pd.weights_desc(), ws, tag::ba, m->weight.data())},
          {DNNL_ARG_BIAS, pack(bias, bs, tag::ab, m->bias.data())},
          {DNNL_ARG_DST, out}};
  primitive = dnnl::matmul(pd);
}

void dn_step_call::lstm(const float *x, const float *h, const float *c) {
  const auto *m = model;
  dims xs{1, rows, m->inputs}, hs{1, 1, rows, m->units}, ys{1, rows, m->units};
  dims ws{1, 1, m->inputs, 4, m->units}, us{1, 1, m->units, 4, m->units}, bs{1, 1, 4, m->units};
  memory::desc bias(bs, type::f32, tag::ldgo), cell(hs, type::f32, tag::ldnc);
  dnnl::lstm_forward::desc d(dnnl::prop_kind::forward_inference, dnnl::rnn_direction::unidirectional_left2right,
                             {xs, m->data, tag::tnc}, {hs, m->data, tag::ldnc}, cell, {ws, m->data, tag::any},
                             {us, m->data, tag::any}, bias, {ys, m->data, tag::tnc}, {hs, m->data, tag::ldnc}, cell);
  dnnl::lstm_forward::primitive_desc pd(d, engine);
  detail = pd.impl_info_str();
  out = memory(pd.dst_layer_desc(), engine);
  out_c = memory(pd.dst_iter_c_desc(), engine);
  args = {{DNNL_ARG_SRC_LAYER, input(pd.src_layer_desc(), xs, tag::tnc, x)},
          {DNNL_ARG_SRC_ITER, input(pd.src_iter_desc(), hs, tag::ldnc, h)},
          {DNNL_ARG_SRC_ITER_C, input(pd.src_iter_c_desc(), hs, tag::ldnc, c)},
          {DNNL_ARG_WEIGHTS_LAYER, pack(pd.weights_layer_desc(), ws, tag::ldgoi, m->weight.data())},
          {DNNL_ARG_WEIGHTS_ITER, pack(pd.weights_iter_desc(), us, tag::ldgoi, m->recurrent.data())},
          {DNNL_ARG_BIAS, pack(bias, bs, tag::ldgo, m->bias.data())},
          {DNNL_ARG_DST_LAYER, out},
          {DNNL_ARG_DST_ITER, memory(pd.dst_iter_desc(), engine)},
          {DNNL_ARG_DST_ITER_C, out_c}};
  primitive = dnnl::lstm_forward(pd);
}

void dn_step_call::gru(const float *x, const float *h) {
  const auto *m = model;
  dims xs{1, rows, m->inputs}, hs{1, 1, rows, m->units}, ys{1, rows, m->units};
  dims ws{1, 1, m->inputs, 3, m->units}, us{1, 1, m->units, 3, m->units}, bs{1, 1, 4, m->units};
  memory::desc bias(bs, type::f32, tag::ldgo);
  dnnl::lbr_gru_forward::desc d(dnnl::prop_kind::forward_inference, dnnl::rnn_direction::unidirectional_left2right,
                                {xs, m->data, tag::tnc}, {hs, m->data, tag::ldnc}, {ws, m->data, tag::any},
                                {us, m->data, tag::any}, bias, {ys, m->data, tag::tnc}, {hs, m->data, tag::ldnc});
  dnnl::lbr_gru_forward::primitive_desc pd(d, engine);
  detail = pd.impl_info_str();
  out = memory(pd.dst_layer_desc(), engine);
  args = {{DNNL_ARG_SRC_LAYER, input(pd.src_layer_desc(), xs, tag::tnc, x)},
          {DNNL_ARG_SRC_ITER, input(pd.src_iter_desc(), hs, tag::ldnc, h)},
          {DNNL_ARG_WEIGHTS_LAYER, pack(pd.weights_layer_desc(), ws, tag::ldgoi, m->weight.data())},
          {DNNL_ARG_WEIGHTS_ITER, pack(pd.weights_iter_desc(), us, tag::ldgoi, m->recurrent.data())},
          {DNNL_ARG_BIAS, pack(bias, bs, tag::ldgo, m->bias.data())},
          {DNNL_ARG_DST_LAYER, out},
          {DNNL_ARG_DST_ITER, memory(pd.dst_iter_desc(), engine)}};
  primitive = dnnl::lbr_gru_forward(pd);
}

void dn_step_call::run() {
  for (auto &c : converted) dnnl::reorder(c.first, c.second).execute(stream, c.first, c.second);
  primitive.execute(stream, args);
  stream.wait();
}

namespace {

// Calls f and says whether it went well.
template <typename F>
bool attempt(char *error, F f) {
  try {
    f();
    return true;
  } catch (const dnnl::error &e) {
    std::snprintf(error, DN_STEP_ERROR, "%s (status %d)", e.what(), int(e.status));
  } catch (const std::exception &e) {
    std::snprintf(error, DN_STEP_ERROR, "%s", e.what());
  }
  return false;
}

// Appends the numbers of one gate.
void append(std::vector<float> &to, const float *from, size_t gate, size_t size) {
  to.insert(to.end(), from + gate * size, from + (gate + 1) * size);
}

}  // namespace

void dn_step_threads(int n) { omp_set_num_threads(n); }

const char *dn_step_version(void) {
  static char text[64];
  const dnnl_version_t *v = dnnl_version();
  const char *isa = "";
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::avx512_core_amx: isa = "avx512_core_amx"; break;
    case dnnl::cpu_isa::avx512_core_bf16: isa = "avx512_core_bf16"; break;
    case dnnl::cpu_isa::avx512_core_vnni: isa = "avx512_core_vnni"; break;
    case dnnl::cpu_isa::avx512_core: isa = "avx512_core"; break;
    case dnnl::cpu_isa::avx2_vnni: isa = "avx2_vnni"; break;
    case dnnl::cpu_isa::avx2: isa = "avx2"; break;
    default: isa = "other instructions";
  }
  std::snprintf(text, sizeof text, "%d.%d.%d %s", v->major, v->minor, v->patch, isa);
  return text;
}

dn_step_model *dn_step_load(dn_step_kind kind, int inputs, int units, int bf16, const float *weight, const float *recurrent,
                      const float *bias, const float *recurrent_bias, char *error) {
  dn_step_model *m = nullptr;
  bool ok = attempt(error, [&] {
    m = new dn_step_model{kind, inputs, units, bf16 ? type::bf16 : type::f32, {}, {}, {}};
    std::vector<size_t> gates{0};
    if (kind == DN_STEP_LSTM) gates = {0, 1, 2, 3};
    if (kind == DN_STEP_GRU) gates = {1, 0, 2};  // the library begins with the update gate
    for (size_t g : gates) {
      append(m->weight, weight, g, size_t(units) * inputs);
      if (kind != DN_STEP_PRODUCT) append(m->recurrent, recurrent, g, size_t(units) * units);
      append(m->bias, bias, g, units);
    }
    if (kind != DN_STEP_GRU) return;
    // Update and reset have one bias; the candidate has one for each product.
    for (int j = 0; j < units; j++) {
      m->bias[j] += recurrent_bias[units + j];
      m->bias[units + j] += recurrent_bias[j];
    }
    append(m->bias, recurrent_bias, 2, units);
  });
  if (ok) return m;
  delete m;
  return nullptr;
}

dn_step_call *dn_step_bind(const dn_step_model *m, int rows, const float *x, const float *h, const float *c, char *error) {
  dn_step_call *b = nullptr;
  bool ok = attempt(error, [&] {
    b = new dn_step_call(m, rows);
    switch (m->kind) {
      case DN_STEP_PRODUCT: b->product(x); break;
      case DN_STEP_LSTM: b->lstm(x, h, c); break;
      case DN_STEP_GRU: b->gru(x, h); break;
    }
  });
  if (ok) return b;
  delete b;
  return nullptr;
}

int dn_step_run(dn_step_call *b, char *error) {
  return attempt(error, [&] { b->run(); }) ? 0 : 1;
}

int dn_step_output(dn_step_call *b, float *to, char *error) {
  return attempt(error, [&] {
    // All outputs as float32 rows by units.
    auto plain = [&](memory &from) {
      std::vector<float> numbers(size_t(b->rows) * b->model->units);
      memory::desc d(from.get_desc().dims(), type::f32, from.get_desc().dims().size() == 2   ? tag::ab
                                                        : from.get_desc().dims().size() == 3 ? tag::abc
                                                                                             : tag::abcd);
      memory as(d, b->engine, numbers.data());
      dnnl::reorder(from, as).execute(b->stream, from, as);
      b->stream.wait();
      return numbers;
    };
    size_t n = b->model->units;
    std::vector<float> h = plain(b->out);
    if (!b->out_c) {
      std::copy(h.begin(), h.end(), to);
      return;
    }
    std::vector<float> c = plain(b->out_c);
    for (int r = 0; r < b->rows; r++) {
      std::copy_n(h.begin() + r * n, n, to + 2 * r * n);
      std::copy_n(c.begin() + r * n, n, to + (2 * r + 1) * n);
    }
  }) ? 0 : 1;
}

const char *dn_step_detail(const dn_step_call *b) { return b->detail.c_str(); }

void dn_step_unbind(dn_step_call *b) { delete b; }

void dn_step_unload(dn_step_model *m) { delete m; }
