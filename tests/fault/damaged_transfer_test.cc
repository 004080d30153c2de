// What the ranks of a trainer send to each other and to rollouts in an update, changed, repeated,
// exchanged or of an earlier update. Whatever happens, a rollout serves a version as a whole; what
// was wrong is named, or did no harm; and the next update succeeds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "tests/fakes/weight_pair.h"
#include "tests/support/status_matchers.h"

namespace tandem::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr int kTrials = 6;  // of each fault

// All of its buckets are of one size: Gloo ends the process where a message has another size than
// what is waited for.
TestModel Version(int64_t version) {
  TestModel model{{{{32, 8}}, {{16, 16}}, {{256}}}};
  model.offset = static_cast<double>(version);
  return model;
}

at::Tensor Flipped(const at::Tensor& tensor, std::mt19937_64& random) {
  at::Tensor changed = tensor.clone();
  auto* const bytes = static_cast<char*>(changed.data_ptr());
  bytes[random() % changed.nbytes()] ^= static_cast<char>(1 << (random() % 8));
  return changed;
}

// Meddles with one message of those that a rank sends: number `at`, counted from the arming.
class Meddler {
 public:
  using Body = std::function<std::vector<at::Tensor>(const at::Tensor&)>;

  std::vector<at::Tensor> operator()(absl::string_view, const at::Tensor& tensor) {
    absl::MutexLock lock(&mu_);
    now_.push_back(tensor.clone());
    const auto number = now_.size() - 1;
    if (!held_.empty() && number >= at_ + length_ && number < at_ + 2 * length_) {
      std::vector<at::Tensor> out = {tensor};
      if (number + 1 == at_ + 2 * length_) {
        out.insert(out.end(), held_.begin(), held_.end());
        held_.clear();
      }
      return out;
    }
    if (body_ == nullptr || number < at_) return {tensor};
    if (number >= at_ + length_) return {tensor};
    met_ = true;
    return body_(tensor);
  }

  // Before an update.
  void Arm(size_t at, size_t length, Body body) {
    absl::MutexLock lock(&mu_);
    before_ = std::move(now_);
    now_.clear();
    at_ = at;
    length_ = length;
    body_ = std::move(body);
    held_.clear();
    met_ = false;
  }
  void Disarm() { Arm(0, 0, nullptr); }
  void Hold(const at::Tensor& tensor) { held_.push_back(tensor.clone()); }  // within the body
  // Of the update before, and of this one up to now.
  const std::vector<at::Tensor>& before() const { return before_; }
  const std::vector<at::Tensor>& now() const { return now_; }
  bool met() const { return met_; }

 private:
  absl::Mutex mu_;
  std::vector<at::Tensor> before_, now_, held_;
  size_t at_ = 0, length_ = 0;
  Body body_;
  bool met_ = false;
};

class Scene {
 public:
  Scene(const std::string& transport, const std::string& backend, Meddler* update, Meddler* world,
        int world_rank) {
    FakeTrainer::Options options;
    options.bucket_bytes = 128;
    options.backend = backend;
    options.transport = transport;
    if (update != nullptr) {
      options.meddle_update = [update](absl::string_view tag, const at::Tensor& tensor) {
        return (*update)(tag, tensor);
      };
    }
    if (world != nullptr) {
      options.meddle_world = [world, world_rank](int rank, absl::string_view tag,
                                                 const at::Tensor& tensor) {
        return rank == world_rank ? (*world)(tag, tensor) : std::vector<at::Tensor>{tensor};
      };
    }
    auto made = FakeTrainer::Create(Version(0), options);
    EXPECT_OK(made.status());
    trainer_ = *std::move(made);
  }

  absl::Status Next(absl::Duration timeout = absl::Seconds(20)) {
    trainer_->SetWeights(Version(++version_));
    return trainer_->Publish(version_, {Endpoint("one", one_), Endpoint("two", two_)}, timeout)
        .status();
  }
  void ExpectWhole(bool newest) const {
    for (const FakeRollout* rollout : {&one_, &two_}) {
      const int64_t live = rollout->store.live_version();
      if (live >= 0) ExpectLive(*rollout, Version(live), live);
      if (newest) {
        EXPECT_EQ(live, version_);
      }
    }
  }

 private:
  FakeRollout one_{Version(0)}, two_{Version(0)};
  std::unique_ptr<FakeTrainer> trainer_;
  int64_t version_ = 0;
};

// An update that something happens to, then one without.
void Try(Scene& scene, Meddler& meddler, const ::testing::Matcher<std::string>& names_it,
         absl::Duration timeout) {
  const absl::Status status = scene.Next(timeout);
  EXPECT_TRUE(meddler.met());
  scene.ExpectWhole(/*newest=*/status.ok());
  if (!status.ok()) {
    EXPECT_THAT(std::string(status.message()), names_it);
  }
  meddler.Disarm();
  ASSERT_OK(scene.Next());
  scene.ExpectWhole(/*newest=*/true);
}

// How the bytes travel, over what, and what happens to them.
class DamagedBucket
    : public ::testing::TestWithParam<std::tuple<std::string, std::string, std::string>> {};

TEST_P(DamagedBucket, IsNamedAndTheNextUpdateIsWhole) {
  const auto& [transport, backend, fault] = GetParam();
  Meddler meddler;
  Scene scene(transport, backend, &meddler, nullptr, 0);
  ASSERT_OK(scene.Next());
  std::mt19937_64 random(7);
  for (int trial = 0; trial < kTrials; ++trial) {
    SCOPED_TRACE(trial);
    meddler.Disarm();
    ASSERT_OK(scene.Next());
    // A delta is a message that says how long the next one is.
    const size_t step = transport == "delta" ? 2 : 1;
    const size_t at = random() % (meddler.now().size() / step - 1) * step;
    if (fault == "flipped") {
      meddler.Arm(at + random() % step, 1, [&](const at::Tensor& tensor) {
        return std::vector<at::Tensor>{Flipped(tensor, random)};
      });
    } else if (fault == "repeated") {
      meddler.Arm(at + step - 1, 1, [&, step](const at::Tensor& tensor) {
        std::vector<at::Tensor> twice = {tensor};
        if (step == 2) twice.push_back(meddler.now()[meddler.now().size() - 2]);
        twice.push_back(tensor.clone());
        return twice;
      });
    } else if (fault == "exchanged") {
      meddler.Arm(at, step, [&](const at::Tensor& tensor) {
        meddler.Hold(tensor);
        return std::vector<at::Tensor>();
      });
    } else {
      meddler.Arm(at, step, [&](const at::Tensor&) {
        return std::vector<at::Tensor>{meddler.before()[meddler.now().size() - 1]};
      });
    }
    ASSERT_NO_FATAL_FAILURE(
        Try(scene, meddler, AnyOf(HasSubstr("tensor"), HasSubstr("bucket")), absl::Seconds(3)));
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Faults, DamagedBucket,
                         ::testing::Combine(::testing::Values("broadcast", "reshard", "delta"),
                                            ::testing::Values("gloo", "shared_memory"),
                                            ::testing::Values("flipped", "repeated", "exchanged",
                                                              "stale")),
                         [](const auto& info) {
                           return std::get<0>(info.param) + "_" + std::get<1>(info.param) + "_" +
                                  std::get<2>(info.param);
                         });

// What rank 0 or 1 says to the other: orders, reports, and the buckets that are gathered.
class DamagedWord : public ::testing::TestWithParam<std::tuple<std::string, int>> {};
INSTANTIATE_TEST_SUITE_P(Ranks, DamagedWord,
                         ::testing::Combine(::testing::Values("broadcast", "reshard", "delta"),
                                            ::testing::Values(0, 1)),
                         [](const auto& info) {
                           return std::get<0>(info.param) + "_rank" +
                                  std::to_string(std::get<1>(info.param));
                         });

TEST_P(DamagedWord, WithAFlippedBitIsNamedOrHarmless) {
  const auto& [transport, rank] = GetParam();
  Meddler meddler;
  Scene scene(transport, "shared_memory", nullptr, &meddler, rank);
  ASSERT_OK(scene.Next());
  std::mt19937_64 random(11);
  for (int trial = 0; trial < 2 * kTrials; ++trial) {
    SCOPED_TRACE(trial);
    meddler.Disarm();
    ASSERT_OK(scene.Next());
    meddler.Arm(random() % meddler.now().size(), 1, [&](const at::Tensor& tensor) {
      return std::vector<at::Tensor>{Flipped(tensor, random)};
    });
    ASSERT_NO_FATAL_FAILURE(
        Try(scene, meddler,
            AnyOf(HasSubstr("arrived damaged"), HasSubstr("arrived at the leader with digest")),
            absl::Seconds(20)));
    if (HasFailure()) return;
  }
}

TEST_P(DamagedWord, ThatIsRepeatedOrOfAnEarlierUpdateIsHarmless) {
  const auto& [transport, rank] = GetParam();
  if (transport == "broadcast" && rank == 1) {
    GTEST_SKIP() << "gathered bytes have no frame; their connection neither repeats nor reorders";
  }
  Meddler meddler;
  Scene scene(transport, "shared_memory", nullptr, &meddler, rank);
  ASSERT_OK(scene.Next());
  meddler.Disarm();
  ASSERT_OK(scene.Next());
  // A message is words and bytes, but of the gather words alone, and so is rank 1's answer to an
  // order, which comes before its report.
  const size_t length = transport == "broadcast" ? 1 : 2;
  const auto first = static_cast<size_t>(rank);
  for (const bool earlier : {false, true}) {
    SCOPED_TRACE(earlier);
    const auto begin = meddler.now().begin() + static_cast<std::ptrdiff_t>(first);
    const std::vector<at::Tensor> message(begin, begin + static_cast<std::ptrdiff_t>(length));
    // After a whole message: this one again, or that of the update before.
    meddler.Arm(first + length - 1, 1, [&](const at::Tensor& tensor) {
      const std::vector<at::Tensor>& now = meddler.now();
      std::vector<at::Tensor> out = {tensor};
      if (earlier)
        out.insert(out.end(), message.begin(), message.end());
      else
        out.insert(out.end(), now.end() - static_cast<std::ptrdiff_t>(length), now.end());
      return out;
    });
    const absl::Status status = scene.Next();
    EXPECT_OK(status);
    EXPECT_TRUE(meddler.met());
    scene.ExpectWhole(/*newest=*/true);
    meddler.Disarm();
    ASSERT_OK(scene.Next());
    scene.ExpectWhole(/*newest=*/true);
  }
}

}  // namespace
}  // namespace tandem::testing
