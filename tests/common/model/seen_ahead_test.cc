// Attention where some tokens see behind themselves, to the end of their image: the kernels against plain
// ATen in float64, forward and backward, and a paged cache against packed sequences, bit for bit.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "common/model/chunked_attention.h"
#include "common/model/eager_ops.h"
#include "common/model/image_places.h"
#include "common/model/packed_attention.h"
#include "common/model/paged_attention.h"

namespace tandem::model {
namespace {

constexpr int64_t kHeads = 4, kKvHeads = 2, kHeadDim = 16, kValueDim = 24;

// A sequence's length, and the runs of tokens that see one another.
struct Images {
  int64_t length;
  std::vector<ImageRun> runs;
};

// Runs at the start, shorter and longer than a window and than a block of keys, over its end, and none.
const std::vector<Images> kSequences = {{40, {{0, 5}, {6, 20}}},
                                        {9, {}},
                                        {420, {{3, 150}, {151, 155}, {240, 400}}},
                                        {130, {{120, 129}}}};

std::vector<int64_t> EndsOf(const Images& images) {
  std::vector<int64_t> placeholders;
  for (const ImageRun& run : images.runs) {
    for (int64_t t = run.begin; t < run.end; ++t) placeholders.push_back(t);
  }
  return SeenEnds(placeholders, 0, images.length);
}

class SeenAhead : public ::testing::TestWithParam<Window> {
 protected:
  void SetUp() override {
    at::manual_seed(5);
    std::vector<int64_t> starts = {0}, ends;
    for (const Images& images : kSequences) {
      starts.push_back(starts.back() + images.length);
      const std::vector<int64_t> of_sequence = EndsOf(images);
      ends.insert(ends.end(), of_sequence.begin(), of_sequence.end());
    }
    cu_seqlens_ = at::tensor(starts, at::kLong);
    seen_ends_ = at::tensor(ends, at::kLong);
    const int64_t tokens = starts.back();
    inputs_ = {at::randn({tokens, kHeads, kHeadDim}), at::randn({tokens, kKvHeads, kHeadDim}),
               at::randn({tokens, kKvHeads, kValueDim})};
    params_.scale = 0.3;
    params_.window = GetParam();
  }

  std::vector<at::Tensor> Inputs(at::ScalarType dtype) const {
    std::vector<at::Tensor> inputs;
    for (const at::Tensor& x : inputs_) inputs.push_back(x.to(dtype));
    return inputs;
  }

  // The output of `attend` and the gradients of q, k and v.
  template <typename Attend>
  std::vector<at::Tensor> Results(const std::vector<at::Tensor>& inputs,
                                  const Attend& attend) const {
    const at::AutoGradMode grad(true);
    std::vector<at::Tensor> leaves;
    for (const at::Tensor& x : inputs) leaves.push_back(x.detach().clone().requires_grad_(true));
    const at::Tensor out = attend(leaves);
    const at::Tensor weight = at::sin(at::arange(out.numel(), at::kDouble)).view(out.sizes());
    std::vector<at::Tensor> results =
        torch::autograd::grad({(out.to(at::kDouble) * weight).sum()}, leaves);
    results.insert(results.begin(), out.detach());
    return results;
  }

  // With a mask of all pairs, written down here.
  std::vector<at::Tensor> Expected(const std::vector<at::Tensor>& inputs) const {
    return Results(inputs, [&](const std::vector<at::Tensor>& in) {
      std::vector<at::Tensor> outputs;
      int64_t start = 0;
      for (const Images& images : kSequences) {
        at::Tensor hidden = at::ones({images.length, images.length}, at::kBool);
        auto is_hidden = hidden.accessor<bool, 2>();
        for (int64_t q = 0; q < images.length; ++q) {
          for (int64_t k = 0; k < images.length; ++k) {
            const bool is_of_image =
                std::any_of(images.runs.begin(), images.runs.end(), [&](const ImageRun& run) {
                  return run.begin <= std::min(q, k) && std::max(q, k) < run.end;
                });
            if ((k <= q || is_of_image) && k >= params_.window.OldestSeen(q))
              is_hidden[q][k] = false;
          }
        }
        const auto part = [&](const at::Tensor& x) {
          return x.narrow(0, start, images.length).to(at::kDouble).transpose(0, 1);
        };
        const int64_t group = kHeads / kKvHeads;
        const at::Tensor keys = part(in[1]).repeat_interleave(group, 0);
        const at::Tensor scores = part(in[0]).matmul(keys.transpose(1, 2)) * params_.scale;
        const at::Tensor p = at::softmax(scores.masked_fill(hidden, -INFINITY), -1);
        outputs.push_back(
            p.matmul(part(in[2]).repeat_interleave(group, 0)).transpose(0, 1).flatten(1));
        start += images.length;
      }
      return at::cat(outputs);
    });
  }

  static void ExpectClose(const std::vector<at::Tensor>& found,
                          const std::vector<at::Tensor>& expected, double tolerance) {
    for (size_t i = 0; i < expected.size(); ++i) {
      const double difference =
          (found[i].to(at::kDouble) - expected[i].to(at::kDouble)).abs().max().item<double>();
      EXPECT_LT(difference, tolerance * (1 + expected[i].abs().max().item<double>())) << i;
    }
  }

  at::Tensor cu_seqlens_, seen_ends_;
  std::vector<at::Tensor> inputs_;
  AttentionParams params_;
};

TEST_P(SeenAhead, KernelsAgreeWithAMaskOfAllPairs) {
  for (const auto& [dtype, tolerance] : {std::pair(at::kFloat, 1e-5), {at::kBFloat16, 2e-2}}) {
    const std::vector<at::Tensor> inputs = Inputs(dtype);
    PackedAttention attention(cu_seqlens_, PackedAttention::Implementation::kFast, {}, seen_ends_);
    ExpectClose(
        Results(inputs,
                [&](const auto& in) { return attention.Forward(0, in[0], in[1], in[2], params_); }),
        Expected(inputs), tolerance);
  }
}

TEST_P(SeenAhead, PlainOperationsAgreeWithAMaskOfAllPairs) {
  const std::vector<at::Tensor> inputs = Inputs(at::kDouble);
  const std::vector<at::Tensor> expected = Expected(inputs);
  PackedAttention eager(cu_seqlens_, PackedAttention::Implementation::kEager, {}, seen_ends_);
  ExpectClose(
      Results(inputs,
              [&](const auto& in) { return eager.Forward(0, in[0], in[1], in[2], params_); }),
      expected, 1e-9);
  // Some queries at a time.
  ExpectClose(Results(inputs,
                      [&](const auto& in) {
                        return ChunkedAttention(in[0], in[1], in[2], cu_seqlens_, params_,
                                                /*scores_at_once=*/7 * 420 * kHeads, seen_ends_);
                      }),
              expected, 1e-9);
}

TEST_P(SeenAhead, APagedCacheGivesTheSameBits) {
  const at::NoGradGuard no_grad;
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const std::vector<at::Tensor> inputs = Inputs(dtype);
    PackedAttention packed(cu_seqlens_, PackedAttention::Implementation::kFast, {}, seen_ends_);
    const at::Tensor expected = packed.Forward(0, inputs[0], inputs[1], inputs[2], params_);
    const PagedKvCache cache = PagedKvCache::Create({.num_layers = 1,
                                                     .num_blocks = 27,
                                                     .num_kv_heads = kKvHeads,
                                                     .head_dim = kHeadDim,
                                                     .v_head_dim = kValueDim,
                                                     .dtype = dtype})
                                   .value();
    std::vector<int32_t> blocks;
    for (int32_t i = 26; i >= 0; --i) blocks.push_back(i);
    // Chunks that end where no image is cut; and those of one that begin within an image whose first half is
    // in the cache.
    for (const int64_t chunk : {int64_t{1}, int64_t{13}, int64_t{1000}}) {
      int64_t start = 0;
      for (const Images& images : kSequences) {
        const std::vector<int64_t> ends = EndsOf(images);
        const auto attend = [&](int64_t begin, int64_t count) {
          const auto part = [&](const at::Tensor& x) { return x.narrow(0, start + begin, count); };
          PagedAttention attention(cache, {{.num_tokens = count,
                                            .context_length = begin + count,
                                            .blocks = blocks.data(),
                                            .seen_ends = ends.data() + begin}});
          const at::Tensor out =
              attention.Forward(0, part(inputs[0]), part(inputs[1]), part(inputs[2]), params_);
          EXPECT_TRUE(at::equal(out, part(expected)))
              << chunk << ": " << images.length << " from " << begin;
        };
        for (int64_t begin = 0, count = 0; begin < images.length; begin += count) {
          count = ends[std::min(begin + chunk, images.length) - 1] - begin;
          attend(begin, count);
        }
        for (const ImageRun& run : images.runs) {
          const int64_t half = (run.begin + run.end) / 2;
          attend(half, run.end - half);
        }
        start += images.length;
      }
    }
  }
}

// The prefix holds the images.
TEST_P(SeenAhead, APrefixThatIsSharedGivesTheSameBits) {
  const at::NoGradGuard no_grad;
  const int64_t prefix = 200, length = kSequences[2].length, start = 49;
  // The second sequence is the third of all, and the first its beginning with 11 other tokens.
  const std::vector<at::Tensor> inputs = Inputs(at::kFloat);
  const auto rows = [&](const at::Tensor& x) {
    return at::cat({x.narrow(0, start, length), x.narrow(0, 0, 11)});
  };
  const std::vector<int64_t> ends = EndsOf(kSequences[2]);
  std::vector<int64_t> all = ends;
  for (int64_t t = 0; t < 11; ++t) all.push_back(prefix + t + 1);
  PackedAttention shared(at::tensor({int64_t{0}, length, length + 11}, at::kLong),
                         PackedAttention::Implementation::kFast,
                         at::tensor({int64_t{0}, int64_t{0}, int64_t{0}, prefix}).view({2, 2}),
                         at::tensor(all, at::kLong));
  const at::Tensor found =
      shared.Forward(0, rows(inputs[0]), rows(inputs[1]), rows(inputs[2]), params_);

  std::vector<int64_t> alone(ends.begin(), ends.begin() + prefix);
  for (int64_t t = 0; t < 11; ++t) alone.push_back(prefix + t + 1);
  const auto whole = [&](const at::Tensor& x) {
    return at::cat({x.narrow(0, start, prefix), x.narrow(0, 0, 11)});
  };
  PackedAttention plain(at::tensor({int64_t{0}, prefix + 11}, at::kLong),
                        PackedAttention::Implementation::kFast, {}, at::tensor(alone, at::kLong));
  const at::Tensor expected =
      plain.Forward(0, whole(inputs[0]), whole(inputs[1]), whole(inputs[2]), params_);
  EXPECT_TRUE(at::equal(found.narrow(0, length, 11), expected.narrow(0, prefix, 11)));
  EXPECT_TRUE(at::equal(found.narrow(0, 0, prefix), expected.narrow(0, 0, prefix)));
}

INSTANTIATE_TEST_SUITE_P(Windows, SeenAhead,
                         ::testing::Values(Window(0), Window(4), Window(100), Window(150)));

}  // namespace
}  // namespace tandem::model
