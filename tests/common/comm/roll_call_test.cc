#include "common/comm/roll_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/support/status_matchers.h"

namespace tandem::comm {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class RollCall : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_OK_AND_ASSIGN(store_, StoreServer::Start()); }

  RollCallOptions OfRank(int rank, int size) const {
    RollCallOptions options;
    options.rendezvous.port = store_->port();
    options.rendezvous.prefix = "test";
    options.rank = rank;
    options.size = size;
    options.timeout = absl::Seconds(60);
    options.interval = absl::Milliseconds(1);
    return options;
  }

  std::unique_ptr<StoreServer> store_;
};

TEST_F(RollCall, OfRankZeroNamesTheMissingUntilAllAreThere) {
  std::vector<std::vector<int>> seen;
  RollCallOptions options = OfRank(0, 4);
  options.on_missing = [&](const std::vector<int>& missing) {
    if (!seen.empty() && seen.back() == missing) return;
    seen.push_back(missing);
    ASSERT_OK(CallRoll(OfRank(missing.size() == 3 ? 2 : missing.front(), 4)));
  };

  ASSERT_OK(CallRoll(options));

  EXPECT_THAT(seen, ElementsAre(ElementsAre(1, 2, 3), ElementsAre(1, 3), ElementsAre(3)));
}

TEST_F(RollCall, EndsAtItsDeadlineWithTheMissingRanks) {
  RollCallOptions options = OfRank(0, 4);
  options.timeout = absl::Milliseconds(50);
  ASSERT_OK(CallRoll(OfRank(2, 4)));

  EXPECT_THAT(CallRoll(options),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("rank 1,3 of 4"), HasSubstr("MASTER_ADDR"))));
}

TEST_F(RollCall, AfterItAStoreThatIsGoneIsNotAwaited) {
  const RollCallOptions options = OfRank(1, 2);
  ASSERT_OK(CallRoll(options));
  const Rendezvous after = AfterRollCall(options.rendezvous);
  ASSERT_OK(StoreClient::Connect(after, absl::Minutes(5)).status());
  store_.reset();

  const absl::Time begin = absl::Now();
  EXPECT_THAT(StoreClient::Connect(after, absl::Minutes(5)),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr(absl::StrCat("store 127.0.0.1:", after.port)),
                             HasSubstr("it answered before"))));
  EXPECT_LT(absl::Now() - begin, absl::Minutes(2));
}

}  // namespace
}  // namespace tandem::comm
