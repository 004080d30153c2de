#include "common/model/step_memory.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace tandem::model {
namespace {

TEST(StepMemory, GivesATensorAgainWhenNobodyHoldsIt) {
  StepMemory memory;
  at::Tensor first = memory.Take({4, 8}, at::kFloat);
  const void* const place = first.const_data_ptr();
  const at::Tensor other = memory.Take({4, 8}, at::kFloat);
  EXPECT_NE(other.const_data_ptr(), place);
  first.reset();
  const at::Tensor smaller = memory.Take({3, 5}, at::kFloat);
  EXPECT_EQ(smaller.const_data_ptr(), place);
  EXPECT_EQ(smaller.sizes(), (std::vector<int64_t>{3, 5}));
  EXPECT_TRUE(smaller.is_contiguous());
  EXPECT_EQ(smaller.nbytes(), 60u);
}

TEST(StepMemory, AViewHoldsItsTensor) {
  StepMemory memory;
  at::Tensor view = memory.Take({4, 8}, at::kFloat).narrow(0, 1, 2);
  const void* const place = view.storage().data();
  EXPECT_NE(memory.Take({4, 8}, at::kFloat).const_data_ptr(), place);
  view.reset();
  const at::Tensor a = memory.Take({4, 8}, at::kFloat);
  const at::Tensor b = memory.Take({4, 8}, at::kFloat);
  EXPECT_TRUE(a.const_data_ptr() == place || b.const_data_ptr() == place);
}

TEST(StepMemory, TakesTheSmallestThatIsLargeEnough) {
  StepMemory memory;
  at::Tensor large = memory.Take({1000}, at::kFloat);
  at::Tensor small = memory.Take({10}, at::kFloat);
  const void* const small_place = small.const_data_ptr();
  large.reset();
  small.reset();
  EXPECT_EQ(memory.Take({8}, at::kFloat).const_data_ptr(), small_place);
  EXPECT_NE(memory.Take({11}, at::kFloat).const_data_ptr(), small_place);
}

TEST(StepMemory, TypesDoNotMix) {
  StepMemory memory;
  memory.Take({16}, at::kFloat);
  const at::Tensor halves = memory.Take({16}, at::kBFloat16);
  EXPECT_EQ(halves.scalar_type(), at::kBFloat16);
  EXPECT_EQ(memory.Take({16}, at::kFloat).scalar_type(), at::kFloat);
}

TEST(StepMemory, IsInUseOnOneThreadForAWhile) {
  StepMemory memory;
  const void* place = nullptr;
  {
    const UseStepMemory use(&memory);
    place = EmptyTensor({32}, at::kFloat).const_data_ptr();
    EXPECT_EQ(EmptyTensor({32}, at::kFloat).const_data_ptr(), place);
    const UseStepMemory none(nullptr);
    EXPECT_NE(EmptyTensor({32}, at::kFloat).const_data_ptr(), place);
    std::thread([place] {
      EXPECT_NE(EmptyTensor({32}, at::kFloat).const_data_ptr(), place);
    }).join();
  }
  EXPECT_NE(EmptyTensor({32}, at::kFloat).const_data_ptr(), place);
  const at::Tensor held = memory.Take({32}, at::kFloat);
  EXPECT_EQ(held.const_data_ptr(), place);
  memory.ReleaseUnused();
  EXPECT_EQ(held.numel(), 32);
}

}  // namespace
}  // namespace tandem::model
