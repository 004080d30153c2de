#include "common/rpc/enum_check.h"

#include <gtest/gtest.h>

#include "tandem/rollout/v1/rollout_service.pb.h"
#include "tandem/trainer/v1/trainer_service.pb.h"
#include "tests/support/status_matchers.h"

namespace tandem::rpc {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::HasSubstr;

constexpr auto kUnknown = static_cast<common::v1::FinishReason>(77);

TEST(EnumCheck, KnownValuesAndAbsentFieldsPass) {
  rollout::v1::GenerateRequest request;
  EXPECT_OK(CheckEnums(request));
  request.add_begun()->set_finish_reason(common::v1::FINISH_REASON_STOP);
  EXPECT_OK(CheckEnums(request));
}

TEST(EnumCheck, NamesThePathBelowThePlace) {
  rollout::v1::GenerateRequest request;
  request.add_begun();
  request.add_begun()->set_finish_reason(kUnknown);
  EXPECT_THAT(CheckEnums(request),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "begun[1].finish_reason: expected one of FINISH_REASON_UNSPECIFIED, "
                       "FINISH_REASON_STOP, FINISH_REASON_LENGTH, FINISH_REASON_ABORTED, "
                       "FINISH_REASON_MAX_TURNS; found 77"));
  common::v1::Sample sample;
  sample.add_segments()->set_kind(static_cast<common::v1::SegmentKind>(-1));
  EXPECT_THAT(CheckEnums(sample, "samples[3]"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("samples[3].segments[0].kind: expected one of")));
}

TEST(EnumCheck, LooksAtListsOfEnums) {
  rollout::v1::PauseRequest request;
  request.add_release(rollout::v1::RELEASED_MEMORY_KV);
  request.add_release(static_cast<rollout::v1::ReleasedMemory>(9));
  EXPECT_THAT(CheckEnums(request), StatusIs(absl::StatusCode::kInvalidArgument,
                                            HasSubstr("release[1]: expected one of")));
}

TEST(EnumCheck, AnAnswerThatMakesNoSenseIsTheOtherSidesFault) {
  rollout::v1::GenerateResponse response;
  response.set_finish_reason(kUnknown);
  EXPECT_THAT(CheckAnswerEnums(response),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("finish_reason")));
}

}  // namespace
}  // namespace tandem::rpc
