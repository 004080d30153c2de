// The forward pass in every way in which trainer and rollout take it, held bit for bit against each
// sequence on its own.
#ifndef TANDEM_TESTS_COMMON_MODEL_EXACT_NUMERICS_H_
#define TANDEM_TESTS_COMMON_MODEL_EXACT_NUMERICS_H_

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/model/arena.h"
#include "common/model/device_attention.h"
#include "common/model/model_cache.h"
#include "common/model/packed_arena.h"
#include "common/model/packed_attention.h"
#include "common/model/paged_attention.h"
#include "common/model/random_init.h"
#include "common/model/transformer.h"
#include "tests/common/model/exact_shapes.h"
#include "tests/support/status_matchers.h"

namespace tandem::model {

struct ExactCase {
  ExactShape shape;
  at::ScalarType dtype;
  int threads;
  at::Device device = at::kCPU;
  // Attention over the cache, where it is not PagedAttention.
  decltype(&CreateCudaAttention) make_attention = nullptr;
  int64_t longest = 300;  // tokens of a sequence
  LatentCache latents = LatentCache::kExpanded;
};

inline std::vector<ExactCase> ExactCases(const std::vector<ExactShape>& shapes = ExactShapes()) {
  std::vector<ExactCase> cases;
  for (const ExactShape& shape : shapes) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      for (const int threads : {1, 2}) cases.push_back({shape, dtype, threads});
    }
  }
  return cases;
}

inline std::string ExactCaseName(const ::testing::TestParamInfo<ExactCase>& info) {
  return std::string(info.param.shape.name) +
         (info.param.dtype == at::kFloat ? "_float32_" : "_bfloat16_") +
         std::to_string(info.param.threads) + "_threads";
}

// Of the tokens of a sequence.
struct TokenResults {
  std::vector<float> logits;    // [length, vocab]
  std::vector<float> logprobs;  // [length - 1]
};

inline std::vector<float> ToVector(const at::Tensor& tensor) {
  const at::Tensor values = tensor.detach().cpu().contiguous();
  const float* const data = values.const_data_ptr<float>();
  return std::vector<float>(data, data + values.numel());
}

class ExactNumerics {
 public:
  using Tokens = std::vector<int64_t>;

  ExactNumerics(const ExactCase& exact_case, uint64_t seed)
      : random_(seed),
        model_(exact_case.shape.Spec()),
        arena_(model_.table(), exact_case.dtype, exact_case.device),
        packed_(model_.table(), exact_case.dtype),
        dtype_(exact_case.dtype),
        device_(exact_case.device),
        make_attention_(exact_case.make_attention),
        longest_(exact_case.longest),
        latents_(exact_case.latents) {
    Arena arena(model_.table(), exact_case.dtype);
    RandomInit(model_.spec(), seed, arena);
    // Norms and biases that are not all alike.
    for (size_t i = 0; i < model_.table().parameters().size(); ++i) {
      at::Tensor parameter = arena.Get(static_cast<int>(i));
      const at::Tensor index = at::arange(parameter.numel(), at::kDouble);
      parameter.add_((index * 0.37 + static_cast<double>(i))
                         .sin()
                         .mul(0.1)
                         .view(parameter.sizes())
                         .to(parameter.scalar_type()));
    }
    arena_.CopyFrom(arena);
    if (device_.is_cpu()) packed_.CopyFrom(arena_);
  }

  int64_t Draw(int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random_() % static_cast<uint64_t>(most - least + 1));
  }

  // Mostly short, some beyond several blocks of keys.
  std::vector<Tokens> DrawSequences(int64_t count) {
    std::vector<Tokens> sequences(count);
    for (Tokens& sequence : sequences) {
      sequence.resize(Draw(0, 3) == 0 ? Draw(longest_ / 3, longest_) : Draw(2, 40));
      for (int64_t& id : sequence) id = Draw(0, model_.spec().vocab_size - 1);
    }
    return sequences;
  }

  // A sequence alone, whole, as a reference.
  TokenResults Alone(const Tokens& tokens) { return Packed({tokens}, false)[0]; }

  // Sequences in one batch, as the trainer packs them.
  std::vector<TokenResults> Packed(const std::vector<Tokens>& sequences, bool for_backward) {
    const at::AutoGradMode grad_mode(for_backward);
    if (for_backward) arena_.RequireGrad();
    at::Tensor cu_seqlens = at::zeros({static_cast<int64_t>(sequences.size()) + 1}, at::kLong);
    std::vector<int64_t> all;
    for (size_t i = 0; i < sequences.size(); ++i) {
      all.insert(all.end(), sequences[i].begin(), sequences[i].end());
      cu_seqlens[static_cast<int64_t>(i) + 1] = static_cast<int64_t>(all.size());
    }
    PackedAttention attention(cu_seqlens);
    const at::Tensor hidden =
        Hidden(arena_, at::tensor(all, at::kLong), PackedPositions(cu_seqlens), attention);
    std::vector<TokenResults> results;
    int64_t first = 0;
    for (const Tokens& tokens : sequences) {
      results.push_back(Read(arena_, tokens, hidden.narrow(0, first, tokens.size())));
      first += static_cast<int64_t>(tokens.size());
    }
    return results;
  }

  // The same through a paged cache in random steps: chunks of prompts and single tokens of some of
  // the sequences, in blocks that lie anywhere. From time to time a sequence loses its cache and
  // begins again, or takes over the whole blocks of another with which it shares a prefix. Blocks
  // that have left a window are spoiled.
  std::vector<TokenResults> Paged(const std::vector<Tokens>& sequences, int64_t block_size) {
    const at::NoGradGuard no_grad;
    // A GPU has none, even one that a CPU stands for.
    const bool packed_weights = Draw(0, 1) == 1 && device_.is_cpu() && make_attention_ == nullptr;
    const ParameterProvider& params =
        packed_weights ? static_cast<const ParameterProvider&>(packed_) : arena_;
    PagedKvCache cache = MakeCache(sequences, block_size);
    std::unique_ptr<DeviceAttention> on_device;
    if (make_attention_ != nullptr) {
      auto made = make_attention_(cache, model_.spec().layers.front().attention.num_heads);
      EXPECT_OK(made.status());
      on_device = *std::move(made);
    }
    const int64_t groups = cache.groups().num_groups();
    struct State {
      std::vector<int32_t> blocks;  // a block table
      int64_t computed = 0;
      std::vector<at::Tensor> rows;  // hidden, of the tokens so far
    };
    std::vector<State> states(sequences.size());
    size_t next_block = 0;
    const auto take_blocks = [&](State& state, int64_t count) {
      while (static_cast<int64_t>(state.blocks.size()) < count * groups) {
        state.blocks.push_back(free_blocks_[next_block++]);
      }
    };
    int restarts = 0;
    for (;;) {
      std::vector<PagedSequence> batch;
      std::vector<size_t> members;
      std::vector<int64_t> ids, positions;
      for (size_t i = 0; i < sequences.size(); ++i) {
        State& state = states[i];
        const int64_t left = static_cast<int64_t>(sequences[i].size()) - state.computed;
        if (left == 0 || Draw(0, 3) == 0) continue;
        if (state.computed > 0 && restarts < 2 && Draw(0, 30) == 0) {
          state = State();
          ++restarts;
        }
        const bool shares = !model_.spec().HasLinearAttention();
        if (state.computed == 0 && shares) ShareBlocks(cache, sequences, i, states);
        const int64_t most = static_cast<int64_t>(sequences[i].size()) - state.computed;
        const int64_t count = Draw(0, 2) == 0 ? 1 : std::min(most, Draw(1, 90));
        take_blocks(state, (state.computed + count + block_size - 1) / block_size);
        batch.push_back({static_cast<int64_t>(ids.size()), count, state.computed + count,
                         state.blocks.data(), static_cast<int32_t>(i)});
        members.push_back(i);
        for (int64_t t = state.computed; t < state.computed + count; ++t) {
          ids.push_back(sequences[i][t]);
          positions.push_back(t);
        }
      }
      if (batch.empty()) {
        const bool all_done = std::all_of(states.begin(), states.end(), [&](const State& state) {
          return state.computed == static_cast<int64_t>(sequences[&state - states.data()].size());
        });
        if (all_done) break;
        continue;
      }
      const at::Tensor tokens = at::tensor(ids, at::kLong);
      const at::Tensor places = at::tensor(positions, at::kLong);
      at::Tensor hidden;
      if (on_device != nullptr) {
        at::zeros({1}, device_).item<float>();  // the step before is done
        on_device->Plan(batch);
        hidden = RolloutHidden(params, tokens, places, *on_device);
      } else {
        PagedAttention attention(cache, batch);
        hidden = RolloutHidden(params, tokens, places, attention);
      }
      for (size_t m = 0; m < members.size(); ++m) {
        State& state = states[members[m]];
        state.rows.push_back(hidden.narrow(0, batch[m].first_token, batch[m].num_tokens));
        state.computed += batch[m].num_tokens;
        SpoilUnseenBlocks(cache, state, states);
      }
    }
    std::vector<TokenResults> results;
    for (size_t i = 0; i < sequences.size(); ++i) {
      results.push_back(Read(params, sequences[i], at::cat(states[i].rows)));
    }
    return results;
  }

  const Transformer& model() const { return model_; }

 private:
  // As the rollout's RunStages(): a sum of the residual stream is made by the norm that reads it.
  at::Tensor RolloutHidden(const ParameterProvider& params, const at::Tensor& ids,
                           const at::Tensor& positions, Attention& attention) const {
    const at::Tensor places = positions.to(device_);
    const Rotary rotary = model_.MakeRotary(places);
    Transformer::Carried carried;
    Residual x{model_.Embed(params, ids.to(device_), places, &carried), {}};
    for (int64_t layer = 0; layer < model_.spec().num_layers(); ++layer) {
      x = model_.Block(params, layer, x, rotary, attention, nullptr, nullptr, &carried);
    }
    return model_.FinalNorm(params, Sum(x));
  }

  // ids and positions: on the CPU.
  at::Tensor Hidden(const ParameterProvider& params, const at::Tensor& ids,
                    const at::Tensor& positions, Attention& attention) const {
    const at::Tensor places = positions.to(device_);
    const Rotary rotary = model_.MakeRotary(places);
    const at::Tensor x = model_.Blocks(params, ids.to(device_), places, rotary, attention);
    return model_.FinalNorm(params, x);
  }

  // Rows of the head in random pieces: a row's results are its own.
  TokenResults Read(const ParameterProvider& params, const Tokens& tokens,
                    const at::Tensor& hidden) {
    TokenResults results;
    const int64_t length = static_cast<int64_t>(tokens.size());
    for (int64_t begin = 0; begin < length;) {
      const int64_t count = std::min(length - begin, Draw(0, 1) == 0 ? Draw(1, 8) : length);
      const at::Tensor rows = hidden.narrow(0, begin, count);
      const std::vector<float> logits = ToVector(model_.Logits(params, rows.detach()));
      results.logits.insert(results.logits.end(), logits.begin(), logits.end());
      const int64_t predicted = std::min(count, length - 1 - begin);
      if (predicted > 0) {
        const std::vector<int64_t> targets(tokens.begin() + begin + 1,
                                           tokens.begin() + begin + 1 + predicted);
        const LogProbs out = model_.HeadLogProbs(params, rows.narrow(0, 0, predicted),
                                                 at::tensor(targets, at::kLong).to(device_),
                                                 at::full({predicted}, 0.7f).to(device_));
        const std::vector<float> logprobs = ToVector(out.logprobs);
        results.logprobs.insert(results.logprobs.end(), logprobs.begin(), logprobs.end());
      }
      begin += count;
    }
    return results;
  }

  // Filled with what must not be read.
  PagedKvCache MakeCache(const std::vector<Tokens>& sequences, int64_t block_size) {
    auto options = CacheOfModel(model_.spec(), {}, latents_, device_);
    EXPECT_OK(options.status());
    options->windows = CacheWindows(model_.spec(), make_attention_ != nullptr);
    // On a GPU, even one that a CPU stands for, layers of all sizes are one group.
    if (make_attention_ != nullptr) std::fill(options->sizes.begin(), options->sizes.end(), 1);
    int64_t num_blocks = 0;
    for (const Tokens& tokens : sequences) {
      num_blocks += 4 * GroupLayers(options->windows, options->sizes).num_groups() *
                    (static_cast<int64_t>(tokens.size()) / block_size + 1);
    }
    free_blocks_.resize(num_blocks);
    std::iota(free_blocks_.begin(), free_blocks_.end(), 0);
    std::shuffle(free_blocks_.begin(), free_blocks_.end(), random_);
    options->num_blocks = num_blocks;
    options->block_size = block_size;
    options->dtype = dtype_;
    options->states = {.count = static_cast<int64_t>(sequences.size()), .dtype = dtype_};
    for (const LayerSpec& layer : model_.spec().layers) {
      options->states.layers.push_back(layer.attention.delta);
    }
    auto cache = PagedKvCache::Create(*options);
    EXPECT_OK(cache.status());
    for (int64_t layer = 0; layer < model_.spec().num_layers(); ++layer) {
      for (const at::Tensor& t : {cache->keys(layer), cache->values(layer)}) {
        if (t.defined()) t.fill_(std::numeric_limits<float>::quiet_NaN());
      }
    }
    return *std::move(cache);
  }

  // A prefix hit: the whole blocks that another sequence has computed of the same tokens. The last
  // token is always computed anew.
  template <typename State>
  void ShareBlocks(const PagedKvCache& cache, const std::vector<Tokens>& sequences, size_t i,
                   std::vector<State>& states) {
    const int64_t block_size = cache.options().block_size;
    const int64_t groups = cache.groups().num_groups();
    for (size_t other = 0; other < sequences.size(); ++other) {
      if (other == i || states[other].computed == 0) continue;
      const auto mismatch = std::mismatch(sequences[i].begin(), sequences[i].end(),
                                          sequences[other].begin(), sequences[other].end());
      const int64_t same = std::min<int64_t>(mismatch.first - sequences[i].begin(),
                                             static_cast<int64_t>(sequences[i].size()) - 1);
      const int64_t blocks = std::min(same, states[other].computed) / block_size;
      const auto begin = states[other].blocks.begin();
      bool is_whole = blocks > 0;
      for (int64_t entry = 0; entry < blocks * groups; ++entry) {
        const int64_t first = FirstBlockInUse(cache.groups().windows[entry % groups],
                                              blocks * block_size, block_size);
        is_whole = is_whole && (entry / groups < first || begin[entry] != kNoBlock);
      }
      if (!is_whole) continue;
      State& state = states[i];
      state.blocks.assign(begin, begin + blocks * groups);
      state.computed = blocks * block_size;
      state.rows = {at::cat(states[other].rows).narrow(0, 0, state.computed)};
      return;
    }
  }

  // Takes the blocks that no later token sees out of the state's table. Those in no other table are
  // filled with what must not be read.
  template <typename State>
  static void SpoilUnseenBlocks(const PagedKvCache& cache, State& state,
                                const std::vector<State>& states) {
    const CacheGroups& groups = cache.groups();
    for (size_t entry = 0; entry < state.blocks.size(); ++entry) {
      const auto group = static_cast<int64_t>(entry) % groups.num_groups();
      const int64_t first =
          FirstBlockInUse(groups.windows[group], state.computed, cache.options().block_size);
      if (static_cast<int64_t>(entry) / groups.num_groups() >= first) continue;
      const int32_t block = std::exchange(state.blocks[entry], kNoBlock);
      const bool is_shared = std::any_of(states.begin(), states.end(), [&](const State& other) {
        return std::find(other.blocks.begin(), other.blocks.end(), block) != other.blocks.end();
      });
      if (block == kNoBlock || is_shared) continue;
      for (size_t layer = 0; layer < groups.layers.size(); ++layer) {
        if (groups.layers[layer].group != group || !cache.keys(layer).defined()) continue;
        cache.keys(layer)[block].fill_(std::numeric_limits<float>::quiet_NaN());
        cache.values(layer)[block].fill_(std::numeric_limits<float>::quiet_NaN());
      }
    }
  }

  std::mt19937_64 random_;
  Transformer model_;
  Arena arena_;
  PackedArena packed_;
  at::ScalarType dtype_;
  at::Device device_;
  decltype(&CreateCudaAttention) make_attention_;
  int64_t longest_;
  LatentCache latents_;
  std::vector<int32_t> free_blocks_;
};

inline ::testing::AssertionResult SameBits(const std::vector<float>& a,
                                           const std::vector<float>& b) {
  if (a.size() != b.size()) {
    return ::testing::AssertionFailure() << a.size() << " and " << b.size() << " numbers";
  }
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::memcmp(&a[i], &b[i], sizeof(float)) == 0) continue;
    return ::testing::AssertionFailure() << "number " << i << " of " << a.size() << ": " << a[i]
                                         << " and " << b[i] << ", " << a[i] - b[i] << " apart";
  }
  return ::testing::AssertionSuccess();
}

// One draw of sequences through every way. Returns how many sequences were compared.
inline int CompareWays(const ExactCase& exact_case, uint64_t seed) {
  at::set_num_threads(1);
  ExactNumerics exact(exact_case, seed);
  std::vector<ExactNumerics::Tokens> sequences = exact.DrawSequences(exact.Draw(2, 6));
  // Two that begin alike.
  ExactNumerics::Tokens twin = sequences[0];
  twin.resize(std::max<size_t>(2, twin.size() / 2));
  twin.push_back(3);
  twin.push_back(1);
  sequences.push_back(twin);
  std::vector<TokenResults> alone;
  for (const auto& tokens : sequences) alone.push_back(exact.Alone(tokens));

  at::set_num_threads(exact_case.threads);
  int compared = 0;
  const auto expect_same = [&](const std::vector<TokenResults>& results, const std::string& way) {
    for (size_t i = 0; i < sequences.size(); ++i, ++compared) {
      EXPECT_TRUE(SameBits(results[i].logits, alone[i].logits))
          << "logits, " << way << ", sequence " << i << " of " << sequences[i].size() << ", seed "
          << seed;
      EXPECT_TRUE(SameBits(results[i].logprobs, alone[i].logprobs))
          << "log-probs, " << way << ", sequence " << i << " of " << sequences[i].size()
          << ", seed " << seed;
    }
  };
  expect_same(exact.Paged(sequences, 16), "paged, blocks of 16");
  expect_same(exact.Paged(sequences, 16 * exact.Draw(2, 12)), "paged, larger blocks");
  expect_same(exact.Packed(sequences, false), "packed");
  expect_same(exact.Packed(sequences, true), "packed, with gradients");
  return compared;
}

}  // namespace tandem::model

#endif  // TANDEM_TESTS_COMMON_MODEL_EXACT_NUMERICS_H_
