#include "common/model/routed_experts.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/status_matchers.h"

namespace tandem::model {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

// A dense layer, and two with experts.
ModelSpec Spec() {
  ModelSpec spec;
  spec.layers.resize(3);
  for (const int layer : {1, 2}) {
    spec.layers[layer].experts = {
        .num_experts = 4, .intermediate_size = 8, .routing = {.top_k = 2}};
  }
  return spec;
}

TEST(RoutedExperts, AreThoseOfLayersWithExperts) {
  ASSERT_OK_AND_ASSIGN(const RoutedLayout layout, RoutedLayout::Of(Spec()));
  EXPECT_EQ(layout.num_layers(), 2);
  EXPECT_EQ(layout.top_k(), 2);
  EXPECT_EQ(layout.bytes_per_token(), 8);
  EXPECT_EQ(layout.IndexOf(0), -1);
  EXPECT_EQ(layout.IndexOf(2), 1);
}

TEST(RoutedExperts, NeedLayersOfOneKind) {
  EXPECT_THAT(RoutedLayout::Of(ModelSpec()).status(),
              StatusIs(kInvalid, HasSubstr("no layer with experts")));
  ModelSpec spec = Spec();
  spec.layers[2].experts->routing.top_k = 3;
  EXPECT_THAT(RoutedLayout::Of(spec).status(),
              StatusIs(kInvalid, HasSubstr("layer 2 has 3, an earlier one 2")));
  spec = Spec();
  spec.layers[1].experts->num_experts = 65535;
  EXPECT_THAT(RoutedLayout::Of(spec).status(), StatusIs(kInvalid, HasSubstr("at most 65534")));
}

TEST(RoutedExperts, AreCheckedTokenByToken) {
  ASSERT_OK_AND_ASSIGN(const RoutedLayout layout, RoutedLayout::Of(Spec()));
  constexpr uint16_t kNone = kUnknownExpert;
  EXPECT_OK(layout.Check({}));
  EXPECT_OK(layout.Check({0, 3, kNone, kNone, 1, 2, 2, 3}));
  EXPECT_THAT(layout.Check({0, 3, 1, 2, 0, 1, 0, 4}),
              StatusIs(kInvalid, HasSubstr("token 1, layer 1")));
  EXPECT_THAT(layout.Check({3, 0, 1, 2}), StatusIs(kInvalid, HasSubstr("token 0, layer 0")));
  EXPECT_THAT(layout.Check({1, 1, 1, 2}), StatusIs(kInvalid, HasSubstr("ascending")));
  EXPECT_THAT(layout.Check({0, kNone, 1, 2}), StatusIs(kInvalid, HasSubstr("found 65535")));
}

TEST(RoutedExperts, OfASampleFitInOneMessage) {
  ASSERT_OK_AND_ASSIGN(const RoutedLayout layout, RoutedLayout::Of(Spec()));
  EXPECT_OK(layout.CheckLength(kMaxRoutedBytes / 8));
  EXPECT_THAT(layout.CheckLength(kMaxRoutedBytes / 8 + 1),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("at most 1572864 tokens")));
}

}  // namespace
}  // namespace tandem::model
