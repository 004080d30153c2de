#include "common/model/stored_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "common/model/stored_name.h"
#include "tests/support/status_matchers.h"

namespace tandem::model {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

using Shapes = std::vector<LogicalParameter>;

// A model of one layer with 2 heads, all with keys of their own, and 2 experts.
ModelSpec SpecWith(std::vector<StoredRule> rules) {
  ModelSpec spec;
  LayerSpec layer;
  layer.attention.num_heads = 2;
  layer.attention.num_kv_heads = 2;
  layer.experts.emplace();
  layer.experts->num_experts = 2;
  spec.layers.assign(1, layer);
  spec.stored_rules = std::move(rules);
  return spec;
}

// A rule for each part of one tensor.
std::vector<StoredRule> Fused(StoredFusion fusion, const std::string& tensor,
                              const std::vector<std::string>& parts, bool transposed = false) {
  std::vector<StoredRule> rules;
  for (const std::string& part : parts) {
    rules.push_back({part, tensor, fusion, parts, transposed});
  }
  return rules;
}

absl::StatusOr<StoredLayout> LayoutOf(const ModelSpec& spec, const Shapes& shapes) {
  return StoredLayout::Create(spec, shapes, nullptr);
}

// For each parameter, the indices in the stored tensor of its elements in order.
std::vector<std::vector<int32_t>> IndicesIn(const StoredLayout& layout) {
  std::vector<std::vector<int32_t>> indices;
  for (size_t p = 0; p < layout.parameters().size(); ++p) {
    std::vector<int32_t>& of = indices.emplace_back();
    for (const StoredView& view : layout.ViewsOf(p)) {
      std::vector<int32_t> tensor(NumElements(view.tensor_shape));
      std::iota(tensor.begin(), tensor.end(), 0);
      std::vector<int32_t> part(view.numel());
      GatherElements(view, view.first, view.numel(), sizeof(int32_t),
                     reinterpret_cast<const std::byte*>(tensor.data()),
                     reinterpret_cast<std::byte*>(part.data()));
      of.insert(of.end(), part.begin(), part.end());
    }
  }
  return indices;
}

TEST(StoredLayout, WithoutRulesEveryParameterIsATensorOfItsName) {
  ASSERT_OK_AND_ASSIGN(const StoredLayout layout,
                       LayoutOf(SpecWith({}), {{"a", {3, 2}}, {"b", {4}}}));

  ASSERT_EQ(layout.tensors().size(), 2u);
  EXPECT_EQ(layout.tensors()[1].name, "b");
  EXPECT_THAT(layout.tensors()[0].shape, ElementsAre(3, 2));
  EXPECT_TRUE(layout.ViewsOf(0)[0].IsWholeTensor());
  EXPECT_THAT(layout.ViewsOf(0)[0].sizes, ElementsAre(6));
}

TEST(StoredLayout, StacksPartsOfDifferentRows) {
  const Shapes shapes = {{"q", {2, 2}}, {"k", {1, 2}}, {"v", {1, 2}}};
  ASSERT_OK_AND_ASSIGN(
      const StoredLayout layout,
      LayoutOf(SpecWith(Fused(StoredFusion::kStacked, "qkv", {"q", "k", "v"})), shapes));

  ASSERT_EQ(layout.tensors().size(), 1u);
  EXPECT_THAT(layout.tensors()[0].shape, ElementsAre(4, 2));
  EXPECT_EQ(layout.DescribeParts(layout.tensors()[0]), "q, k, v");
  EXPECT_THAT(IndicesIn(layout),
              ElementsAre(ElementsAre(0, 1, 2, 3), ElementsAre(4, 5), ElementsAre(6, 7)));
}

TEST(StoredLayout, StackedAndTransposedPartsAreColumns) {
  // GPT-2's c_attn: [in, 3 * out].
  const Shapes shapes = {{"q", {2, 3}}, {"k", {1, 3}}, {"v", {1, 3}}};
  ASSERT_OK_AND_ASSIGN(
      const StoredLayout layout,
      LayoutOf(SpecWith(Fused(StoredFusion::kStacked, "c_attn", {"q", "k", "v"}, true)), shapes));

  EXPECT_THAT(layout.tensors()[0].shape, ElementsAre(3, 4));
  EXPECT_THAT(IndicesIn(layout), ElementsAre(ElementsAre(0, 4, 8, 1, 5, 9), ElementsAre(2, 6, 10),
                                             ElementsAre(3, 7, 11)));
}

TEST(StoredLayout, ATransposedMatrixAloneHasItsColumnsAsRows) {
  ASSERT_OK_AND_ASSIGN(
      const StoredLayout layout,
      LayoutOf(SpecWith({{"w", "c_fc", StoredFusion::kNone, {}, true}}), {{"w", {2, 3}}}));

  EXPECT_THAT(layout.tensors()[0].shape, ElementsAre(3, 2));
  EXPECT_THAT(IndicesIn(layout), ElementsAre(ElementsAre(0, 2, 4, 1, 3, 5)));
}

TEST(StoredLayout, ABiasOfATransposedRuleIsAsItIs) {
  ASSERT_OK_AND_ASSIGN(
      const StoredLayout layout,
      LayoutOf(SpecWith(Fused(StoredFusion::kStacked, "c_attn.bias", {"q", "k"}, true)),
               {{"q", {2}}, {"k", {2}}}));

  EXPECT_THAT(layout.tensors()[0].shape, ElementsAre(4));
  EXPECT_THAT(IndicesIn(layout), ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
}

// GPT-NeoX: q, k and v of each head, here with 2 heads of 2.
const std::vector<std::string> kHeadParts = {"l{layer}.q", "l{layer}.k", "l{layer}.v"};

TEST(StoredLayout, PerHeadTakesRowsOfEveryHead) {
  const Shapes shapes = {{"l0.q", {4, 1}}, {"l0.k", {4, 1}}, {"l0.v", {4, 1}}};
  ASSERT_OK_AND_ASSIGN(
      const StoredLayout layout,
      LayoutOf(SpecWith(Fused(StoredFusion::kPerHead, "h.{layer}.qkv", kHeadParts)), shapes));

  EXPECT_EQ(layout.tensors()[0].name, "h.0.qkv");
  EXPECT_THAT(layout.tensors()[0].shape, ElementsAre(12, 1));
  EXPECT_THAT(IndicesIn(layout), ElementsAre(ElementsAre(0, 1, 6, 7), ElementsAre(2, 3, 8, 9),
                                             ElementsAre(4, 5, 10, 11)));
  EXPECT_THAT(layout.ViewsOf(1)[0].strides, ElementsAre(6, 1));
}

TEST(StoredLayout, PerHeadFusesBiasesAlike) {
  const Shapes shapes = {{"l0.q", {4}}, {"l0.k", {4}}, {"l0.v", {4}}};
  ASSERT_OK_AND_ASSIGN(
      const StoredLayout layout,
      LayoutOf(SpecWith(Fused(StoredFusion::kPerHead, "h.{layer}.qkv", kHeadParts)), shapes));

  EXPECT_THAT(layout.tensors()[0].shape, ElementsAre(12));
  EXPECT_THAT(IndicesIn(layout), ElementsAre(ElementsAre(0, 1, 6, 7), ElementsAre(2, 3, 8, 9),
                                             ElementsAre(4, 5, 10, 11)));
}

TEST(StoredLayout, PerHeadAndTransposed) {
  const Shapes shapes = {{"l0.q", {2, 2}}, {"l0.k", {2, 2}}, {"l0.v", {2, 2}}};
  ASSERT_OK_AND_ASSIGN(
      const StoredLayout layout,
      LayoutOf(SpecWith(Fused(StoredFusion::kPerHead, "h.{layer}.qkv", kHeadParts, true)), shapes));

  // Columns q0 k0 v0 q1 k1 v1.
  EXPECT_THAT(layout.tensors()[0].shape, ElementsAre(2, 6));
  EXPECT_THAT(IndicesIn(layout), ElementsAre(ElementsAre(0, 6, 3, 9), ElementsAre(1, 7, 4, 10),
                                             ElementsAre(2, 8, 5, 11)));
}

TEST(StoredLayout, PerGroupHasAllQueriesOfAKeyBeforeIt) {
  // Falcon: 2 groups of 2 queries, a key and a value, heads of 1.
  const Shapes shapes = {{"l0.q", {4, 2}}, {"l0.k", {2, 2}}, {"l0.v", {2, 2}}};
  ModelSpec spec = SpecWith(Fused(StoredFusion::kPerGroup, "h.{layer}.qkv", kHeadParts));
  spec.layers[0].attention.num_heads = 4;
  ASSERT_OK_AND_ASSIGN(const StoredLayout layout, LayoutOf(spec, shapes));

  EXPECT_THAT(layout.tensors()[0].shape, ElementsAre(8, 2));
  EXPECT_THAT(IndicesIn(layout), ElementsAre(ElementsAre(0, 1, 2, 3, 8, 9, 10, 11),
                                             ElementsAre(4, 5, 12, 13), ElementsAre(6, 7, 14, 15)));
}

TEST(StoredLayout, AlternatingRowsWithAndWithoutTransposition) {
  const Shapes shapes = {{"gate", {2, 2}}, {"up", {2, 2}}};
  const auto rules = [](bool transposed) {
    return SpecWith(Fused(StoredFusion::kAlternating, "gate_up", {"gate", "up"}, transposed));
  };
  ASSERT_OK_AND_ASSIGN(const StoredLayout rows, LayoutOf(rules(false), shapes));
  ASSERT_OK_AND_ASSIGN(const StoredLayout columns, LayoutOf(rules(true), shapes));

  EXPECT_THAT(IndicesIn(rows), ElementsAre(ElementsAre(0, 1, 4, 5), ElementsAre(2, 3, 6, 7)));
  EXPECT_THAT(columns.tensors()[0].shape, ElementsAre(2, 4));
  EXPECT_THAT(IndicesIn(columns), ElementsAre(ElementsAre(0, 4, 2, 6), ElementsAre(1, 5, 3, 7)));
}

TEST(StoredLayout, ATensorOfAllExpertsHasThemAlongItsFirstDimension) {
  // gpt-oss: [experts, in, 2 * out], gate and up in turn.
  const Shapes shapes = {
      {"l0.e0.gate", {1, 2}}, {"l0.e0.up", {1, 2}}, {"l0.e1.gate", {1, 2}}, {"l0.e1.up", {1, 2}}};
  const std::vector<StoredRule> rules =
      Fused(StoredFusion::kAlternating, "l{layer}.gate_up",
            {"l{layer}.e{expert}.gate", "l{layer}.e{expert}.up"}, true);
  ASSERT_OK_AND_ASSIGN(const StoredLayout layout, LayoutOf(SpecWith(rules), shapes));

  EXPECT_THAT(layout.tensors()[0].shape, ElementsAre(2, 2, 2));
  EXPECT_THAT(IndicesIn(layout), ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3),
                                             ElementsAre(4, 6), ElementsAre(5, 7)));
  // Without the second expert, its rows are missing.
  EXPECT_THAT(LayoutOf(SpecWith(rules), {shapes[0], shapes[1]}),
              StatusIs(kInvalid, HasSubstr("row 2 of 4 belongs to no parameter")));
}

TEST(StoredLayout, ATensorForEachHeadIsARowOfTheParameter) {
  // StableLM's norms.
  ASSERT_OK_AND_ASSIGN(const StoredLayout layout,
                       LayoutOf(SpecWith({{"q_norm", "norms.{head}"}}), {{"q_norm", {2, 3}}}));

  ASSERT_EQ(layout.tensors().size(), 2u);
  EXPECT_EQ(layout.tensors()[1].name, "norms.1");
  EXPECT_THAT(layout.tensors()[1].shape, ElementsAre(3));
  EXPECT_EQ(layout.ViewsOf(0)[1].first, 3);
  EXPECT_THAT(IndicesIn(layout), ElementsAre(ElementsAre(0, 1, 2, 0, 1, 2)));
}

TEST(StoredLayout, AParameterWithMoreHeadsThanTheModelIsRefused) {
  EXPECT_THAT(LayoutOf(SpecWith({{"q_norm", "norms.{head}"}}), {{"q_norm", {int64_t{1} << 59, 1}}}),
              StatusIs(kInvalid, HasSubstr("expected a row for each head, at most 2, found ")));
  EXPECT_THAT(
      LayoutOf(SpecWith({{"l{layer}.q_norm", "l{layer}.norms.{head}"}}), {{"l7.q_norm", {2, 3}}}),
      StatusIs(kInvalid, HasSubstr("l7.q_norm")));
}

TEST(StoredLayout, SkippedRowsBelongToNoParameter) {
  StoredRule rule{"model.embed_positions.weight", "model.decoder.embed_positions.weight"};
  rule.skip_rows = 2;
  ASSERT_OK_AND_ASSIGN(const StoredLayout layout,
                       LayoutOf(SpecWith({rule}), {{"model.embed_positions.weight", {3, 2}}}));

  EXPECT_THAT(layout.tensors()[0].shape, ElementsAre(5, 2));
  EXPECT_TRUE(layout.tensors()[0].has_gaps);
  EXPECT_THAT(IndicesIn(layout), ElementsAre(ElementsAre(4, 5, 6, 7, 8, 9)));
}

TEST(StoredLayout, TheFirstRuleForANameCounts) {
  ASSERT_OK_AND_ASSIGN(const StoredLayout layout,
                       LayoutOf(SpecWith({{"a", "first"}, {"a", "second"}}), {{"a", {1}}}));

  EXPECT_EQ(layout.ViewsOf(0)[0].tensor, "first");
}

TEST(StoredLayout, ATiedHeadFollowsItsOwnRule) {
  ModelSpec spec = SpecWith(
      {{"lm_head.weight", "embed_out.weight"}, {"model.embed_tokens.weight", "embed_in.weight"}});
  spec.tie_word_embeddings = true;
  ASSERT_OK_AND_ASSIGN(const StoredLayout layout,
                       LayoutOf(spec, {{"model.embed_tokens.weight", {3, 2}}}));

  EXPECT_EQ(layout.tied_parameter(), 0);
  ASSERT_EQ(layout.tied_views().size(), 1u);
  EXPECT_EQ(layout.tied_views()[0].tensor, "embed_out.weight");
  EXPECT_EQ(layout.tensors().size(), 1u);
}

TEST(StoredLayout, IgnoresThePatternsOfTheFamilyAndTheHeadOfACritic) {
  ModelSpec spec = SpecWith({{"lm_head.weight", "embed_out.weight"}});
  spec.ignored_tensors = {"h.*.attn.bias"};
  ASSERT_OK_AND_ASSIGN(const StoredLayout policy, LayoutOf(spec, {{"a", {1}}}));
  spec.value_head = true;
  ASSERT_OK_AND_ASSIGN(const StoredLayout critic, LayoutOf(spec, {{"a", {1}}}));

  EXPECT_TRUE(policy.Ignores("h.3.attn.bias"));
  EXPECT_TRUE(policy.Ignores("model.layers.0.self_attn.rotary_emb.inv_freq"));
  EXPECT_FALSE(policy.Ignores("h.3.attn.c_attn.bias"));
  EXPECT_FALSE(policy.Ignores("embed_out.weight"));
  EXPECT_TRUE(critic.Ignores("embed_out.weight"));
}

TEST(StoredLayout, NamesTheTensorAndTheParametersThatOverlap) {
  EXPECT_THAT(LayoutOf(SpecWith({{"a", "t"}, {"b", "t"}}), {{"a", {2}}, {"b", {2}}}),
              StatusIs(kInvalid, AllOf(HasSubstr("tensor t"), HasSubstr("both a and b"))));
}

TEST(StoredLayout, NamesTheTensorThatHasRowsOfNoParameter) {
  // k lies elsewhere, although q's rule has it as a part.
  std::vector<StoredRule> rules = Fused(StoredFusion::kStacked, "qk", {"q", "k"});
  rules[1] = {"k", "k_alone"};
  EXPECT_THAT(LayoutOf(SpecWith(rules), {{"q", {2}}, {"k", {3}}}),
              StatusIs(kInvalid, AllOf(HasSubstr("tensor qk: row 2 of 5"), HasSubstr("of q"))));
}

TEST(StoredLayout, NamesTheRulesThatDisagreeOnATensorsShape) {
  std::vector<StoredRule> rules = Fused(StoredFusion::kStacked, "qk", {"q", "k"});
  rules[1].parts = {"k"};
  EXPECT_THAT(LayoutOf(SpecWith(rules), {{"q", {2, 1}}, {"k", {3, 1}}}),
              StatusIs(kInvalid, AllOf(HasSubstr("[5, 1] by the rule for q"),
                                       HasSubstr("[3, 1] by that for k"))));
}

TEST(StoredLayout, RefusesRulesThatDoNotFitTheParameters) {
  const auto fused = [](StoredFusion fusion) {
    return SpecWith(Fused(fusion, "l{layer}.qk", {"l{layer}.q", "l{layer}.k"}));
  };
  EXPECT_THAT(LayoutOf(fused(StoredFusion::kPerGroup), {{"l0.q", {4, 1}}, {"l0.k", {3, 1}}}),
              StatusIs(kInvalid, HasSubstr("3 rows of l0.k do not split into 2")));
  EXPECT_THAT(LayoutOf(fused(StoredFusion::kPerHead), {{"l0.q", {4, 1}}, {"l0.k", {2, 1}}}),
              StatusIs(kInvalid, HasSubstr("differ in their rows")));
  EXPECT_THAT(LayoutOf(fused(StoredFusion::kStacked), {{"l0.q", {4, 1}}, {"l0.k", {2, 2}}}),
              StatusIs(kInvalid, HasSubstr("but l0.k [2, 2]")));
  EXPECT_THAT(LayoutOf(fused(StoredFusion::kStacked), {{"l0.q", {4, 1}}}),
              StatusIs(kInvalid, HasSubstr("l0.k is no parameter")));
  EXPECT_THAT(LayoutOf(fused(StoredFusion::kPerHead), {{"l7.q", {4, 1}}, {"l7.k", {4, 1}}}),
              StatusIs(kInvalid, HasSubstr("{layer}")));
  EXPECT_THAT(
      LayoutOf(SpecWith({{"a", "t", StoredFusion::kStacked, {"b"}}}), {{"a", {1}}, {"b", {1}}}),
      StatusIs(kInvalid, HasSubstr("not among the rule's parts: b")));
}

TEST(StoredName, BindsNumbersAndFillsThemIn) {
  const auto numbers = MatchStoredName("model.layers.{layer}.mlp.experts.{expert}.up_proj.weight",
                                       "model.layers.12.mlp.experts.3.up_proj.weight");
  ASSERT_TRUE(numbers.has_value());
  EXPECT_EQ(numbers->layer, 12);
  EXPECT_EQ(numbers->expert, 3);
  EXPECT_EQ(FillStoredName("h.{layer}.w{expert}", *numbers), "h.12.w3");

  EXPECT_FALSE(MatchStoredName("h.{layer}.a", "h.x.a").has_value());
  EXPECT_FALSE(MatchStoredName("h.{layer}.a", "h.1.a.b").has_value());
  EXPECT_FALSE(MatchStoredName("h.{layer}.a", "h.1").has_value());
  EXPECT_FALSE(MatchStoredName("{layer}.{layer}", "1.2").has_value());
}

TEST(StoredView, RunsCoverAnyRangeOnce) {
  // 2 heads of 2 rows of 3 columns, transposed, after 5 elements of the parameter.
  const StoredView view{"t", {3, 8}, 5, 1, {2, 2, 3}, {4, 1, 8}};
  std::vector<int64_t> all;
  ForStoredRuns(view, 5, 12, [&](const StoredRun& run) {
    EXPECT_EQ(run.first, 5 + static_cast<int64_t>(all.size()));
    for (int64_t i = 0; i < run.count; ++i) all.push_back(run.stored + i * run.stride);
  });
  EXPECT_THAT(all, ElementsAre(1, 9, 17, 2, 10, 18, 5, 13, 21, 6, 14, 22));

  for (int64_t first = 5; first < 17; ++first) {
    for (int64_t count = 0; first + count <= 17; ++count) {
      std::vector<int64_t> some;
      ForStoredRuns(view, first, count, [&](const StoredRun& run) {
        for (int64_t i = 0; i < run.count; ++i) some.push_back(run.stored + i * run.stride);
      });
      EXPECT_EQ(some,
                std::vector<int64_t>(all.begin() + (first - 5), all.begin() + (first - 5 + count)));
    }
  }
}

TEST(StoredView, ScattersWhatItGathers) {
  const StoredView view{"t", {2, 4}, 0, 1, {2, 2}, {2, 4}};
  const std::vector<uint16_t> in = {10, 11, 12, 13};
  std::vector<uint16_t> tensor(8, 0);
  for (int64_t i = 0; i < 4; i += 2) {
    ScatterElements(view, i, 2, sizeof(uint16_t), reinterpret_cast<const std::byte*>(&in[i]),
                    reinterpret_cast<std::byte*>(tensor.data()));
  }
  EXPECT_THAT(tensor, ElementsAre(0, 10, 0, 12, 0, 11, 0, 13));
  std::vector<uint16_t> out(3);
  GatherElements(view, 1, 3, sizeof(uint16_t), reinterpret_cast<const std::byte*>(tensor.data()),
                 reinterpret_cast<std::byte*>(out.data()));
  EXPECT_THAT(out, ElementsAre(11, 12, 13));
}

TEST(StoredView, SimplifiesToTheFewestDimensions) {
  StoredView view{"t", {}, 0, 0, {3, 1, 2, 4}, {16, 99, 4, 1}};
  Simplify(view);
  EXPECT_THAT(view.sizes, ElementsAre(3, 8));
  EXPECT_THAT(view.strides, ElementsAre(16, 1));
  StoredView one{"t", {}, 0, 0, {1, 1}, {7, 7}};
  Simplify(one);
  EXPECT_TRUE(one.contiguous());
}

}  // namespace
}  // namespace tandem::model
