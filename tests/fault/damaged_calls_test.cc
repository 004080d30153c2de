// Every call of a weight update between the trainer and a rollout, with its request or its answer
// changed, repeated, late or of an earlier update. Whatever happens, a rollout serves a version as
// a whole; what was wrong is named, or did no harm; and the next update succeeds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/status/status_macros.h"
#include "tests/fakes/rpc_proxy.h"
#include "tests/fakes/weight_pair.h"
#include "tests/support/status_matchers.h"
#include "tools/tandem/driver/weight_check.h"

namespace tandem::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr int kFlips = 30;  // trials of each message

TestModel Version(int64_t version) {
  TestModel model = TestModel::Small();
  model.offset = static_cast<double>(version);
  return model;
}

// What it serves, read from its memory, is a version as a whole, and the one that it states.
void ExpectWhole(const FakeRollout& rollout) {
  const int64_t version = rollout.store.live_version();
  if (version >= 0) ExpectLive(rollout, Version(version), version);
}

struct Which {
  std::string method;
  bool request;
};
std::string Name(const Which& which) {
  return which.method + (which.request ? "Request" : "Answer");
}
void PrintTo(const Which& which, std::ostream* out) { *out << Name(which); }

// A trainer and two rollouts, one of which is reached through a proxy.
class Scene {
 public:
  explicit Scene(Which which) : which_(std::move(which)) {
    proxy_.on_request = [this](const std::string& method, std::string& bytes) {
      if (which_.request) See(method, bytes);
      if (method != which_.method) return 1;
      if (repeats_.exchange(false)) {
        met_ = true;
        return 2;
      }
      if (holds_.exchange(false)) {
        met_ = true;
        absl::MutexLock lock(&mu_);
        const int done = calls_done_;
        const auto another = [&]()
                                 ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return calls_done_ > done; };
        mu_.AwaitWithTimeout(absl::Condition(&another), absl::Seconds(3));
      }
      return 1;
    };
    proxy_.on_response = [this](const std::string& method, std::string& bytes) {
      if (!which_.request) See(method, bytes);
    };
    proxy_.on_done = [this](const std::string&) {
      absl::MutexLock lock(&mu_);
      ++calls_done_;
    };
    NewTrainer();
  }

  // One message is changed in a few bits.
  void Flip(uint64_t seed) {
    change_ = [this, seed](std::string& bytes) {
      std::mt19937_64 random(seed);
      for (uint64_t i = 0; i <= seed % 3 && !bytes.empty(); ++i) {
        bytes[random() % bytes.size()] ^= static_cast<char>(1 << (random() % 8));
      }
      if (!bytes.empty()) met_ = true;
    };
  }
  // One message is instead what it was in the update before.
  void Replay() {
    change_ = [this](std::string& bytes) {
      bytes = former_;
      met_ = true;
    };
  }
  void Repeat() { repeats_ = true; }
  // A request arrives only after the next one to the same rollout, or late.
  void Exchange() { holds_ = true; }

  // An update in which the call is made; the second is without a fault.
  absl::Status Update(absl::Duration timeout = absl::Seconds(20)) {
    if (which_.method == "ReadWeights") {
      // Comes late, and reads the version from the one that has it.
      late_ = std::make_unique<FakeRollout>(Version(0));
      trainer_->SetWeights(Version(version_));
      return trainer_
          ->Publish(version_, {{"one", {proxy_.address()}}, Endpoint("late", *late_)}, timeout)
          .status();
    }
    if (which_.method == "GetDigests") {
      RETURN_IF_ERROR(Next());
      return Check(timeout);
    }
    if (which_.method == "GetManifest") NewTrainer();
    if (which_.method == "AbortUpdate") two_.store.arrive_error = absl::InternalError("no memory");
    const absl::Status status = Next(timeout);
    two_.store.arrive_error = absl::OkStatus();
    return status;
  }
  absl::Status Next(absl::Duration timeout = absl::Seconds(20)) {
    trainer_->SetWeights(Version(++version_));
    return trainer_
        ->Publish(version_, {{"one", {proxy_.address()}}, Endpoint("two", two_)}, timeout)
        .status();
  }
  // As `tandem sync --verify` looks: whoever says that all is well has compared every tensor.
  absl::Status Check(absl::Duration timeout) {
    trainer::v1::GetWeightDigestsResponse expected;
    expected.set_policy_version(version_);
    for (const auto& digest : Version(version_).Digests()) *expected.add_digests() = digest;
    trainer::v1::RolloutReplica replica;
    replica.set_replica_id("one");
    replica.add_rank_addresses(proxy_.address());
    const driver::ReplicaCheck check = driver::CheckReplicas(expected, {replica}, timeout).front();
    RETURN_IF_ERROR(check.status) << "replica one";
    EXPECT_TRUE(check.Agrees(version_))
        << "version " << check.policy_version << ", " << check.differences.size() << " differences";
    return absl::OkStatus();
  }
  void NewTrainer() {
    trainer_.reset();
    auto made = FakeTrainer::Create(
        Version(0),
        {.ranks = 1, .bucket_bytes = 128, .incarnation = ++incarnation_, .transport = "reshard"});
    ASSERT_OK(made.status());
    trainer_ = *std::move(made);
  }

  // Whether a message was met as it was told.
  bool TakeMet() { return met_.exchange(false); }
  void ExpectAllWhole() const {
    ExpectWhole(one_);
    ExpectWhole(two_);
    if (late_ != nullptr) ExpectWhole(*late_);
  }
  void ExpectAllAtNewest() const {
    EXPECT_EQ(one_.store.live_version(), version_);
    EXPECT_EQ(two_.store.live_version(), version_);
    ExpectAllWhole();
  }
  bool fails_anyway() const { return which_.method == "AbortUpdate"; }

 private:
  void See(const std::string& method, std::string& bytes) {
    if (method != which_.method) return;
    absl::MutexLock lock(&mu_);
    const std::string real = bytes;
    if (change_ != nullptr) {
      change_(bytes);
      change_ = nullptr;
    }
    former_ = real;
  }

  const Which which_;
  FakeRollout one_{Version(0)}, two_{Version(0)};
  std::unique_ptr<FakeRollout> late_;
  RpcProxy proxy_{one_.address()};
  std::unique_ptr<FakeTrainer> trainer_;
  int64_t version_ = 0;
  int64_t incarnation_ = 0;
  std::atomic<bool> repeats_{false}, holds_{false}, met_{false};
  absl::Mutex mu_;
  std::function<void(std::string&)> change_;
  std::string former_;
  int calls_done_ ABSL_GUARDED_BY(mu_) = 0;
};

class DamagedCall : public ::testing::TestWithParam<Which> {
 protected:
  // The update in which the fault comes, then one without.
  void Try(Scene& scene, const ::testing::Matcher<std::string>& names_it,
           absl::Duration timeout = absl::Seconds(20)) {
    const absl::Status status = scene.Update(timeout);
    EXPECT_TRUE(scene.TakeMet()) << "the message was never seen";
    scene.ExpectAllWhole();
    if (!status.ok() && !scene.fails_anyway()) {
      EXPECT_THAT(std::string(status.message()), names_it);
    }
    ASSERT_OK(scene.Next());
    scene.ExpectAllAtNewest();
  }
};

// Answers are never misplaced: gRPC takes one for a call, and the trainer goes on after it.
class MisplacedRequest : public DamagedCall {};

TEST_P(DamagedCall, WithFlippedBitsIsNamedOrHarmless) {
  Scene scene(GetParam());
  ASSERT_OK(scene.Next());
  const auto names_it = HasSubstr("damaged");
  for (uint64_t seed = 0; seed < kFlips; ++seed) {
    SCOPED_TRACE(seed);
    scene.Flip(seed);
    ASSERT_NO_FATAL_FAILURE(Try(scene, names_it));
    if (HasFailure()) return;
  }
}

TEST_P(DamagedCall, OfAnEarlierUpdateIsNamedOrHarmless) {
  Scene scene(GetParam());
  ASSERT_OK(scene.Next());
  for (const bool earlier_trainer : {false, true}) {
    ASSERT_OK(scene.Next());
    scene.Update().IgnoreError();  // so that the call was made
    ASSERT_OK(scene.Next());
    if (earlier_trainer) {
      scene.NewTrainer();
      // Only its own version is read from a rollout.
      if (std::string(GetParam().method) == "ReadWeights") ASSERT_OK(scene.Next());
    }
    scene.Replay();
    Try(scene, AnyOf(HasSubstr("damaged"), HasSubstr("not open"), HasSubstr("is over"),
                     HasSubstr("has ended")));
  }
}

TEST_P(MisplacedRequest, RepeatedIsHarmless) {
  Scene scene(GetParam());
  ASSERT_OK(scene.Next());
  scene.Repeat();
  const absl::Status status = scene.Update();
  EXPECT_EQ(status.ok(), !scene.fails_anyway()) << status;
  EXPECT_TRUE(scene.TakeMet());
  scene.ExpectAllWhole();
  ASSERT_OK(scene.Next());
  scene.ExpectAllAtNewest();
}

TEST_P(MisplacedRequest, ThatComesAfterTheNextIsNamedOrHarmless) {
  Scene scene(GetParam());
  ASSERT_OK(scene.Next());
  scene.Exchange();
  Try(scene, AnyOf(HasSubstr("replica one, rank 0"), HasSubstr("rank 0 at"), HasSubstr("not open")),
      absl::Seconds(2));
}

constexpr const char* kMethods[] = {"GetManifest", "BeginUpdate", "VerifyUpdate", "CommitUpdate",
                                    "AbortUpdate", "GetDigests",  "ReadWeights"};

std::vector<Which> Messages(bool answers) {
  std::vector<Which> out;
  for (const char* method : kMethods) {
    out.push_back({method, true});
    if (answers) out.push_back({method, false});
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(Messages, DamagedCall, ::testing::ValuesIn(Messages(/*answers=*/true)),
                         [](const auto& info) { return Name(info.param); });
INSTANTIATE_TEST_SUITE_P(Requests, MisplacedRequest,
                         ::testing::ValuesIn(Messages(/*answers=*/false)),
                         [](const auto& info) { return Name(info.param); });

}  // namespace
}  // namespace tandem::testing
