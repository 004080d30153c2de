#include "services/rollout/sampler/sampler.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/ones_like.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "common/model/cpu_dispatch.h"
#include "common/model/device_row_ops.h"
#include "common/model/kernels/log_probs.h"
#include "services/rollout/sampler/device_sampler.h"
#include "services/rollout/sampler/filter.h"
#include "services/rollout/sampler/row_kernel.h"

namespace tandem::rollout {
namespace {

// exp(-200) is zero in float32.
constexpr double kZeroProbability = 200.0;

// The entry of `weights` at which the running sum passes `target`; else the last one with a weight.
int64_t Walk(const float* weights, int64_t n, double target) {
  double sum = 0.0;
  int64_t last = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (weights[i] <= 0.0f) continue;
    last = i;
    sum += weights[i];
    if (sum > target) break;
  }
  return last;
}

// Draws from all entries that rank at or before `last`, by the sums of their blocks.
int32_t DrawFromRow(const Row& row, const std::optional<Candidate>& last,
                    const std::vector<double>& block_sums, double total, double uniform) {
  // Skips whole blocks by their sums: only the chosen block's exponentials are computed again.
  double target = uniform * total;
  size_t block = 0;
  size_t chosen = 0;
  for (; block < block_sums.size(); ++block) {
    if (block_sums[block] <= 0.0) continue;
    chosen = block;
    if (target < block_sums[block]) break;
    target -= block_sums[block];
  }
  const int64_t begin = static_cast<int64_t>(chosen) * kSumBlock;
  const int64_t n = std::min(kSumBlock, row.size - begin);
  float weights[kSumBlock];
  Exp(row.logits + begin, n, row.maximum, row.inverse_temperature, weights);
  if (last.has_value()) {
    for (int64_t i = 0; i < n; ++i) {
      const Candidate entry{row.logits[begin + i], static_cast<int32_t>(begin + i)};
      if (RanksBefore(*last, entry)) weights[i] = 0.0f;
    }
  }
  return static_cast<int32_t>(begin + Walk(weights, n, target));
}

// Drops the candidates that rank after `last`, and draws from the others.
int32_t DrawFromCandidates(const Row& row, std::vector<Candidate>& candidates,
                           const std::optional<Candidate>& last, double uniform) {
  if (last.has_value()) {
    std::erase_if(candidates, [&](const Candidate& c) { return RanksBefore(*last, c); });
  }
  const int64_t n = static_cast<int64_t>(candidates.size());
  thread_local std::vector<float> weights;
  weights.resize(n);
  for (int64_t i = 0; i < n; ++i) weights[i] = candidates[i].logit;
  Exp(weights.data(), n, row.maximum, row.inverse_temperature, weights.data());
  double total = 0.0;
  for (const float weight : weights) total += weight;
  return candidates[Walk(weights.data(), n, uniform * total)].id;
}

// The stricter of two thresholds.
void Tighten(std::optional<Candidate>& last, const Candidate& other) {
  if (!last.has_value() || RanksBefore(other, *last)) last = other;
}

SampledToken SampleOne(const float* logits, int64_t vocab_size, const SampleRow& request) {
  const RowExtremes extremes = Extremes(logits, vocab_size);
  if (!std::isfinite(extremes.maximum)) return {};
  const FilterParams& params = request.params;
  const bool greedy = params.temperature == 0.0;
  const bool scaled = !greedy && params.temperature != 1.0;

  // This thread's own, as in filter.cc, so that a token costs no allocation.
  thread_local std::vector<double> block_sums;
  thread_local std::vector<Candidate> candidates;
  block_sums.resize((vocab_size + kSumBlock - 1) / kSumBlock);
  const double raw_total = SumExp(logits, vocab_size, extremes.maximum, 1.0f,
                                  scaled || greedy ? nullptr : block_sums.data());
  Row row{logits, vocab_size, extremes.maximum, extremes.minimum, 1.0f};
  double total = raw_total;  // of all tokens at the temperature
  if (scaled) {
    row.inverse_temperature = model::kernels::InverseTemperature(params.temperature);
    total = SumExp(logits, vocab_size, row.maximum, row.inverse_temperature, block_sums.data());
  }

  SampledToken token;
  if (greedy) {
    Candidate first;
    int64_t next;
    CollectAtLeast(logits, 0, vocab_size, row.maximum, &first, 1, &next);
    token.id = first.id;
  } else {
    std::optional<Candidate> last;
    const bool cut = params.top_k > 0 && params.top_k < vocab_size;
    if (cut) TopK(row, params.top_k, candidates);
    if (params.top_p < 1.0) {
      Tighten(last, cut ? TopPLast(row, candidates, params.top_p) : TopPLast(row, params.top_p));
    }
    if (params.min_p > 0.0) Tighten(last, MinPLast(row, params.min_p));
    if (cut) {
      token.id = DrawFromCandidates(row, candidates, last, request.uniform);
    } else {
      double kept = total;
      if (last.has_value()) {
        kept = SumExpKept(logits, vocab_size, row.maximum, row.inverse_temperature, *last,
                          block_sums.data());
      }
      token.id = DrawFromRow(row, last, block_sums, kept, request.uniform);
    }
  }

  const float logit = logits[token.id];
  token.logprob = model::kernels::LogProb(logit, row.maximum, 1.0f, raw_total);
  token.processed_logprob = token.logprob;
  if (scaled) {
    token.processed_logprob =
        model::kernels::LogProb(logit, row.maximum, row.inverse_temperature, total);
  }
  return token;
}

// Draws from a copy of the row with the adjustments; the raw log-prob is that of the row itself.
SampledToken SampleAdjusted(const float* logits, int64_t vocab_size, const SampleRow& request) {
  const RowExtremes extremes = Extremes(logits, vocab_size);
  if (!std::isfinite(extremes.maximum)) return {};
  thread_local std::vector<float> adjusted;
  adjusted.assign(logits, logits + vocab_size);
  request.adjustments->Apply(adjusted.data(), vocab_size);
  SampledToken token = SampleOne(adjusted.data(), vocab_size, request);
  if (token.id < 0) return token;
  const double raw_total = SumExp(logits, vocab_size, extremes.maximum, 1.0f, nullptr);
  token.logprob = model::kernels::LogProb(logits[token.id], extremes.maximum, 1.0f, raw_total);
  return token;
}

SampledToken SampleAny(const float* logits, int64_t vocab_size, const SampleRow& request) {
  return request.adjustments == nullptr ? SampleOne(logits, vocab_size, request)
                                        : SampleAdjusted(logits, vocab_size, request);
}

bool IsForbidden(const SampleRow& request, int32_t id) {
  return std::find(request.forbidden.begin(), request.forbidden.end(), id) !=
         request.forbidden.end();
}

// Draws again, among the ids that are not forbidden, after `first` was. Both draws together give each of
// them its share, and a row whose first draw will do costs nothing.
SampledToken SampleOther(const float* logits, int64_t vocab_size, const SampleRow& request) {
  std::vector<float> allowed(logits, logits + vocab_size);
  if (request.adjustments != nullptr) request.adjustments->Apply(allowed.data(), vocab_size);
  // What the log-probs are of, before ids are taken out.
  const std::vector<float> all = allowed;
  float least = std::numeric_limits<float>::infinity();
  for (int64_t id = 0; id < vocab_size; ++id) {
    if (!IsForbidden(request, static_cast<int32_t>(id))) least = std::min(least, allowed[id]);
  }
  // Far enough below the others that the exponential is zero at the temperature.
  const double temperature = request.params.temperature > 0.0 ? request.params.temperature : 1.0;
  const auto out_of_reach = static_cast<float>(least - kZeroProbability * temperature);
  for (const int32_t id : request.forbidden) {
    if (id < vocab_size) allowed[id] = out_of_reach;
  }
  SampleRow again = request;
  again.adjustments = nullptr;
  // The digits that the first draw did not use.
  again.uniform = request.uniform * 0x1p24 - std::floor(request.uniform * 0x1p24);
  SampledToken token = SampleOne(allowed.data(), vocab_size, again);
  if (token.id < 0) return token;
  const auto log_prob = [&](const float* row, float inverse_temperature) {
    const float maximum = Extremes(row, vocab_size).maximum;
    return model::kernels::LogProb(row[token.id], maximum, inverse_temperature,
                                   SumExp(row, vocab_size, maximum, inverse_temperature, nullptr));
  };
  token.logprob = log_prob(logits, 1.0f);
  const bool scaled = request.params.temperature != 0.0 && request.params.temperature != 1.0;
  token.processed_logprob = log_prob(
      all.data(), scaled ? model::kernels::InverseTemperature(request.params.temperature) : 1.0f);
  return token;
}

// Gives tokens that were drawn on the CPU the log-probs that the device computes, which have other
// bits: those of all other tokens, and of a trainer with exact numerics. `tokens`: of `places`.
void TakeLogProbs(const at::Tensor& logits, absl::Span<const SampleRow> rows,
                  const std::vector<int64_t>& places, std::vector<SampledToken>& tokens) {
  const auto count = static_cast<int64_t>(places.size());
  const at::Tensor needed = at::empty({count}, at::kLong);
  const at::Tensor targets = at::empty({count}, at::kLong);
  const at::Tensor temperatures = at::empty({count}, at::kFloat);
  for (int64_t i = 0; i < count; ++i) {
    const SampleRow& row = rows[places[i]];
    needed.mutable_data_ptr<int64_t>()[i] = row.row;
    targets.mutable_data_ptr<int64_t>()[i] = std::max(tokens[i].id, 0);
    temperatures.mutable_data_ptr<float>()[i] =
        row.params.temperature > 0.0 ? static_cast<float>(row.params.temperature) : 1.0f;
  }
  const at::Device device = logits.device();
  const at::Tensor picked = logits.index_select(0, needed.to(device));
  const at::Tensor ids = targets.to(device);
  const auto log_probs_at = [&](const at::Tensor& of_rows) {
    at::Tensor log_probs = at::empty({count}, picked.options());
    at::Tensor entropy = at::empty_like(log_probs);
    at::Tensor log_sum_exp = at::empty_like(log_probs);
    model::device::RowLogProbs(picked, ids, of_rows.to(device), log_probs, entropy, log_sum_exp);
    return log_probs.cpu();
  };
  const at::Tensor raw = log_probs_at(at::ones_like(temperatures));
  const at::Tensor processed = log_probs_at(temperatures);
  for (int64_t i = 0; i < count; ++i) {
    if (tokens[i].id < 0) continue;
    tokens[i].logprob = raw.const_data_ptr<float>()[i];
    // Of adjusted logits there is no other.
    if (rows[places[i]].adjustments != nullptr) continue;
    tokens[i].processed_logprob = processed.const_data_ptr<float>()[i];
  }
}

// Draws the tokens at `places` on the CPU, from copies of their rows.
void SampleCopies(const at::Tensor& logits, absl::Span<const SampleRow> rows,
                  const std::vector<int64_t>& places, absl::Span<SampledToken> out) {
  const int64_t vocab_size = logits.size(-1);
  std::vector<SampleRow> requests;
  std::vector<int64_t> needed;
  for (const int64_t place : places) {
    // A prompt's samples stand together.
    if (needed.empty() || needed.back() != rows[place].row) needed.push_back(rows[place].row);
    requests.push_back(rows[place]);
    requests.back().row = static_cast<int64_t>(needed.size()) - 1;
  }
  const at::Tensor all = logits.view({-1, vocab_size});
  const auto num_rows = static_cast<int64_t>(needed.size());
  const at::Tensor here = at::empty({num_rows, vocab_size}, at::kFloat);
  for (int64_t i = 0; i < num_rows; ++i) here[i].copy_(all[needed[i]]);
  std::vector<SampledToken> tokens(requests.size());
  Sample(here.const_data_ptr<float>(), vocab_size, requests, absl::MakeSpan(tokens));
  if (model::device::LogitKernelsTake(all)) TakeLogProbs(all, rows, places, tokens);
  for (size_t i = 0; i < requests.size(); ++i) out[places[i]] = tokens[i];
}

// Draws by SampleOnDevice(); on the CPU the tokens with adjustments, and those for which a forbidden
// one was drawn. Returns false, doing nothing, if no kernel supports the logits.
bool SampleThere(const at::Tensor& logits, absl::Span<const SampleRow> rows,
                 absl::Span<SampledToken> out) {
  std::vector<SampleRow> plain;
  for (const SampleRow& row : rows) {
    if (row.adjustments == nullptr) plain.push_back(row);
  }
  std::vector<SampledToken> tokens(plain.size());
  if (!SampleOnDevice(logits, plain, absl::MakeSpan(tokens))) return false;
  std::vector<int64_t> here;
  auto token = tokens.begin();
  for (size_t i = 0; i < rows.size(); ++i) {
    const bool is_adjusted = rows[i].adjustments != nullptr;
    if (!is_adjusted) out[i] = *token++;
    if (is_adjusted || IsForbidden(rows[i], out[i].id)) here.push_back(static_cast<int64_t>(i));
  }
  if (!here.empty()) SampleCopies(logits, rows, here, out);
  return true;
}

}  // namespace

void Sample(const float* logits, int64_t vocab_size, absl::Span<const SampleRow> rows,
            absl::Span<SampledToken> out) {
  model::ForTasks(static_cast<int64_t>(rows.size()), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float* const row = logits + rows[i].row * vocab_size;
      out[i] = SampleAny(row, vocab_size, rows[i]);
      if (IsForbidden(rows[i], out[i].id)) out[i] = SampleOther(row, vocab_size, rows[i]);
    }
  });
}

void Sample(const at::Tensor& logits, absl::Span<const SampleRow> rows,
            absl::Span<SampledToken> out) {
  if (!logits.is_cpu() && SampleThere(logits, rows, out)) return;
  const at::Tensor here = logits.cpu();
  Sample(here.const_data_ptr<float>(), here.size(-1), rows, out);
}

}  // namespace tandem::rollout
