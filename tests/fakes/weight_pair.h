// The two ends of weight updates in one process: rollouts over fake stores, and trainer ranks as
// threads.
#ifndef TANDEM_TESTS_FAKES_WEIGHT_PAIR_H_
#define TANDEM_TESTS_FAKES_WEIGHT_PAIR_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/status/status_macros.h"
#include "common/weights/bucket_plan.h"
#include "services/trainer/publish/shard_gather_source.h"
#include "services/trainer/publish/weight_publisher.h"
#include "tests/fakes/fake_rollout.h"
#include "tests/fakes/test_model.h"

namespace tandem::testing {

// The ranks of a trainer; the publisher belongs to rank 0.
class FakeTrainer {
 public:
  struct Options {
    int ranks = 2;
    int64_t bucket_bytes = 256;
    int64_t incarnation = 1;
    trainer::UpdatePolicy policy = trainer::UpdatePolicy::kAll;
    absl::Duration blame_grace = absl::Milliseconds(500);
    std::string backend = "shared_memory";  // of the update's group
  };

  static absl::StatusOr<std::unique_ptr<FakeTrainer>> Create(const TestModel& model,
                                                             Options options) {
    auto out = std::make_unique<FakeTrainer>();
    out->options_ = options;
    ASSIGN_OR_RETURN(out->plan, weights::MakeTransferPlan(model.manifest(), options.bucket_bytes));
    ASSIGN_OR_RETURN(out->store_, comm::StoreServer::Start());
    out->groups_.resize(options.ranks);
    std::vector<absl::Status> results(options.ranks);
    out->OnEveryRank([&](int rank) {
      comm::GroupOptions group;
      group.name = "fsdp";
      group.rank = rank;
      group.size = options.ranks;
      group.rendezvous = {"127.0.0.1", out->store_->port(), "fsdp"};
      group.timeout = absl::Seconds(60);
      auto made = comm::CreateGlooGroup(group);
      results[rank] = made.status();
      if (made.ok()) out->groups_[rank] = *std::move(made);
    });
    for (const absl::Status& result : results) RETURN_IF_ERROR(result);
    for (int rank = 0; rank < options.ranks; ++rank) {
      trainer::ShardedWeights shards;
      shards.rank = rank;
      shards.ranks = options.ranks;
      for (size_t u = 0; u < model.units.size(); ++u) {
        shards.units.push_back({model.Shard(u, rank, options.ranks), model.UnitNumel(u),
                                model.Padded(u, options.ranks)});
      }
      out->shards_.push_back(shards);
      ASSIGN_OR_RETURN(auto source, trainer::ShardGatherSource::Create(out->plan, shards,
                                                                       out->groups_[rank].get()));
      out->sources_.push_back(std::move(source));
    }
    trainer::WeightPublisher::Options publisher;
    publisher.plan = &out->plan;
    publisher.source = out->sources_[0].get();
    publisher.incarnation = options.incarnation;
    publisher.policy = options.policy;
    publisher.blame_grace = options.blame_grace;
    publisher.backend = options.backend;
    ASSIGN_OR_RETURN(out->publisher_, trainer::WeightPublisher::Create(publisher));
    return out;
  }

  // All ranks take part; answers the leader's result, or a follower's error.
  absl::StatusOr<trainer::PublishReport> Publish(
      int64_t version, const std::vector<trainer::ReplicaEndpoint>& replicas,
      absl::Duration timeout = absl::Seconds(30)) {
    absl::StatusOr<trainer::PublishReport> report = absl::InternalError("not run");
    std::vector<absl::Status> results(options_.ranks);
    OnEveryRank([&](int rank) {
      if (rank == 0)
        report = publisher_->Publish(version, replicas, timeout);
      else
        results[rank] = sources_[rank]->Follow();
    });
    for (const absl::Status& result : results) RETURN_IF_ERROR(result) << "a follower";
    return report;
  }

  // The trainer's own group still works.
  absl::Status Barrier() {
    std::vector<absl::Status> results(options_.ranks);
    OnEveryRank([&](int rank) { results[rank] = groups_[rank]->Barrier("check"); });
    for (const absl::Status& result : results) RETURN_IF_ERROR(result);
    return absl::OkStatus();
  }

  // Makes the masters those of `model`, as a training step does.
  void SetWeights(const TestModel& model) {
    for (int rank = 0; rank < options_.ranks; ++rank) {
      for (size_t u = 0; u < model.units.size(); ++u) {
        shards_[rank].units[u].master.copy_(model.Shard(u, rank, options_.ranks));
      }
    }
  }

  weights::TransferPlan plan;

 private:
  template <typename Body>
  void OnEveryRank(const Body& body) {
    std::vector<std::thread> threads;
    for (int rank = 1; rank < options_.ranks; ++rank)
      threads.emplace_back([&body, rank] { body(rank); });
    body(0);
    for (std::thread& thread : threads) thread.join();
  }

  Options options_;
  std::unique_ptr<comm::StoreServer> store_;
  std::vector<std::unique_ptr<comm::ProcessGroup>> groups_;
  std::vector<trainer::ShardedWeights> shards_;
  std::vector<std::unique_ptr<trainer::ShardGatherSource>> sources_;
  std::unique_ptr<trainer::WeightPublisher> publisher_;
};

inline trainer::ReplicaEndpoint Endpoint(std::string id, const FakeRollout& rollout) {
  return {std::move(id), {rollout.address()}};
}

// What is live on the rollout is the model, byte for byte.
inline void ExpectLive(const FakeRollout& rollout, const TestModel& model, int64_t version) {
  EXPECT_EQ(rollout.store.live_version(), version);
  for (int i = 0; i < rollout.store.manifest().tensors_size(); ++i) {
    EXPECT_EQ(rollout.store.LiveBytes(i), model.Bytes(i))
        << rollout.store.manifest().tensors(i).name();
  }
}

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_FAKES_WEIGHT_PAIR_H_
