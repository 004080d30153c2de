// The secret of an update: another one each time, and the rendezvous takes no older one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <string>
#include <thread>

#include "common/security/secret.h"
#include "common/telemetry/refusals.h"
#include "services/trainer/publish/weight_publisher.h"
#include "tests/fakes/weight_pair.h"
#include "tests/support/status_matchers.h"

namespace tandem::trainer {
namespace {

using ::tandem::testing::Endpoint;
using ::tandem::testing::ExpectLive;
using ::tandem::testing::FakeRollout;
using ::tandem::testing::FakeTrainer;
using ::tandem::testing::StatusIs;
using ::tandem::testing::TestModel;

constexpr absl::Duration kTimeout = absl::Seconds(30);

absl::Status ConnectAsToldBy(const rollout::v1::BeginUpdateRequest& begun,
                             const std::string& secret) {
  const auto& rendezvous = begun.rendezvous();
  return comm::StoreClient::Connect(
             {rendezvous.host(), rendezvous.port(), rendezvous.prefix(), secret}, kTimeout)
      .status();
}

class RendezvousSecretTest : public ::testing::TestWithParam<std::string> {
 protected:
  RendezvousSecretTest() {
    auto trainer =
        FakeTrainer::Create(model_, {.ranks = 2,
                                     .backend = GetParam(),
                                     .transport = GetParam() == "gloo" ? "broadcast" : "reshard"});
    EXPECT_OK(trainer.status());
    trainer_ = *std::move(trainer);
  }
  absl::Status Publish(int64_t version) {
    model_.offset = static_cast<double>(version);
    trainer_->SetWeights(model_);
    return trainer_->Publish(version, {Endpoint("one", one_), Endpoint("two", two_)}).status();
  }

  TestModel model_ = TestModel::Small();
  FakeRollout one_{model_}, two_{model_};
  std::unique_ptr<FakeTrainer> trainer_;
};

TEST_P(RendezvousSecretTest, OfEachUpdateIsNewAndOlderOnesAreRefused) {
  for (int64_t version = 1; version <= 3; ++version) ASSERT_OK(Publish(version));
  const auto begun = one_.begun();
  std::set<std::string> secrets;
  for (const auto& request : begun) {
    EXPECT_EQ(request.rendezvous().secret().size(), security::kSecretBytes);
    secrets.insert(request.rendezvous().secret());
  }
  EXPECT_EQ(secrets.size(), 3u);
  for (const std::string& secret : secrets) {
    const bool is_last = secret == begun.back().rendezvous().secret();
    const absl::Status status = ConnectAsToldBy(begun.back(), secret);
    if (is_last) {
      EXPECT_OK(status);
    } else {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kPermissionDenied, ::testing::_));
    }
  }
  EXPECT_FALSE(ConnectAsToldBy(begun.back(), "").ok());
  // The group was made once: members need not meet anew to be given a new secret.
  EXPECT_EQ(begun.front().rendezvous().prefix(), begun.back().rendezvous().prefix());
}

TEST_P(RendezvousSecretTest, StrangersDoNotDisturbAnUpdate) {
  ASSERT_OK(Publish(1));
  const auto first = one_.begun().front();
  const int64_t before = telemetry::NumRefusals(telemetry::RefusedAt::kRendezvous);
  std::atomic<bool> stop{false};
  std::thread stranger([&] {
    while (!stop) {
      ConnectAsToldBy(first, security::DrawSecret()).IgnoreError();
      ConnectAsToldBy(first, first.rendezvous().secret()).IgnoreError();
    }
  });
  for (int64_t version = 2; version <= 10; ++version) EXPECT_OK(Publish(version));
  stop = true;
  stranger.join();
  ExpectLive(one_, model_, 10);
  ExpectLive(two_, model_, 10);
  EXPECT_GT(telemetry::NumRefusals(telemetry::RefusedAt::kRendezvous), before);
}

// What the leader of two trainer ranks sends the other one, tensors aside, while it publishes.
struct Ordered {
  absl::Status published;
  std::string orders;
  std::string secret;  // of the update
};

Ordered PublishWith(std::vector<std::string> group_secrets) {
  const TestModel model = TestModel::Small();
  FakeRollout rollout(model);
  Ordered out;
  FakeTrainer::Options options;
  options.backend = "socket";
  options.transport = "reshard";
  options.group_secrets = std::move(group_secrets);
  options.meddle_world = [&out](int rank, absl::string_view, const at::Tensor& bytes) {
    if (rank == 0) {
      out.orders.append(static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes());
    }
    return std::vector<at::Tensor>{bytes};
  };
  auto trainer = FakeTrainer::Create(model, std::move(options));
  EXPECT_OK(trainer.status());
  out.published = (*trainer)->Publish(1, {Endpoint("one", rollout)}).status();
  if (!rollout.begun().empty()) out.secret = rollout.begun().back().rendezvous().secret();
  return out;
}

TEST(UpdateSecretTest, TravelsToTheTrainersRanksUnderTheirOwn) {
  const std::string known = "what the trainer's ranks know";
  const Ordered ordered = PublishWith({known, known});
  EXPECT_OK(ordered.published);
  ASSERT_EQ(ordered.secret.size(), security::kSecretBytes);
  EXPECT_GT(ordered.orders.size(), 100u);
  EXPECT_EQ(ordered.orders.find(ordered.secret), std::string::npos);
}

TEST(UpdateSecretTest, RanksThatKnowDifferentSecretsAreToldSo) {
  const auto denied = [](const char* what) {
    return StatusIs(
        absl::StatusCode::kPermissionDenied,
        ::testing::AllOf(::testing::HasSubstr("trainer rank 1"), ::testing::HasSubstr(what)));
  };
  EXPECT_THAT(PublishWith({"what rank 0 knows", "what rank 1 knows"}).published,
              denied("cannot open"));
  EXPECT_THAT(PublishWith({"what rank 0 knows"}).published, denied("this rank has no"));
  EXPECT_THAT(PublishWith({"", "what rank 1 knows"}).published, denied("in plaintext"));
}

INSTANTIATE_TEST_SUITE_P(Backends, RendezvousSecretTest,
                         ::testing::Values("gloo", "messages", "socket", "local_socket",
                                           "shared_memory"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '_');
                           return name;
                         });

}  // namespace
}  // namespace tandem::trainer
