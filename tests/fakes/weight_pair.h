// The two ends of weight updates in one process: rollouts over fake stores, and trainer ranks as
// threads.
#ifndef TANDEM_TESTS_FAKES_WEIGHT_PAIR_H_
#define TANDEM_TESTS_FAKES_WEIGHT_PAIR_H_

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/comm/choose_group.h"
#include "common/comm/shareable_memory.h"
#include "common/status/status_macros.h"
#include "common/weights/bucket_plan.h"
#include "services/trainer/publish/reshard_follower.h"
#include "services/trainer/publish/send_by_broadcast.h"
#include "services/trainer/publish/send_by_reshard.h"
#include "services/trainer/publish/shard_gather_source.h"
#include "services/trainer/publish/weight_publisher.h"
#include "tests/fakes/fake_rollout.h"
#include "tests/fakes/meddling_group.h"
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
    absl::Duration join_timeout = absl::Seconds(30);
    std::string backend = "shared_memory";            // of the update's group, in host memory
    std::vector<common::v1::UpdatePlace> senders;     // of the ranks that send; empty: not stated
    std::string transport = "broadcast";              // or "reshard", "delta"
    weights::DeviceOps* device = &weights::CpuOps();  // of every rank; any thread
    bool lends_masters = false;                       // they lie in memory that can be lent
    // Of what a rank sends to the other ranks of the trainer, and the leader to the replicas; null:
    // nothing is changed.
    std::function<std::vector<at::Tensor>(int rank, absl::string_view tag, const at::Tensor&)>
        meddle_world;
    Meddle meddle_update;
    std::vector<std::string> group_secrets;  // by rank; of a rank beyond the last, none
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
      auto made = comm::CreateGroupOf("gloo", group);
      results[rank] = made.status();
      if (!made.ok()) return;
      out->groups_[rank] = *std::move(made);
      if (options.meddle_world == nullptr) return;
      out->groups_[rank] = std::make_unique<MeddlingGroup>(
          std::move(out->groups_[rank]),
          [rank, meddle = options.meddle_world](absl::string_view tag, const at::Tensor& bytes) {
            return meddle(rank, tag, bytes);
          });
    });
    for (const absl::Status& result : results) RETURN_IF_ERROR(result);
    for (int rank = 0; rank < options.ranks; ++rank) {
      trainer::RankShards shards;
      shards.rank = rank;
      shards.ranks = options.ranks;
      shards.ops = options.device;
      for (size_t u = 0; u < model.units.size(); ++u) {
        at::Tensor master = model.Shard(u, rank, options.ranks).to(options.device->device());
        if (options.lends_masters) {
          master = comm::ShareableZeros(master.numel(), at::kFloat).copy_(master);
        }
        shards.units.push_back({.master = master,
                                .numel = model.UnitNumel(u),
                                .padded_numel = model.Padded(u, options.ranks)});
      }
      out->shards_.push_back(shards);
    }
    if (options.transport == "broadcast") {
      for (int rank = 0; rank < options.ranks; ++rank) {
        ASSIGN_OR_RETURN(out->sources_.emplace_back(),
                         trainer::ShardGatherSource::Create(out->plan, out->shards_[rank],
                                                            out->groups_[rank].get()));
      }
      out->transport_ = std::make_unique<trainer::SendByBroadcast>(
          [model](int num_ranks) { return model.Layout(num_ranks); }, out->sources_[0].get(),
          absl::Seconds(60));
    } else {
      RETURN_IF_ERROR(out->MakeReshard(model));
    }
    trainer::WeightPublisher::Options publisher;
    publisher.transport = out->transport_.get();
    publisher.incarnation = options.incarnation;
    publisher.policy = options.policy;
    publisher.blame_grace = options.blame_grace;
    publisher.join_timeout = options.join_timeout;
    publisher.backend = options.backend;
    publisher.senders = options.senders;
    publisher.device = options.device->device();
    if (options.meddle_update != nullptr) {
      publisher.make_group = [meddle = options.meddle_update](absl::string_view backend,
                                                              const comm::GroupOptions& group)
          -> absl::StatusOr<std::unique_ptr<comm::ProcessGroup>> {
        ASSIGN_OR_RETURN(auto made, comm::CreateGroupOf(backend, group));
        return std::make_unique<MeddlingGroup>(std::move(made), meddle);
      };
    }
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
        results[rank] = options_.transport == "broadcast" ? sources_[rank]->Follow()
                                                          : followers_[rank]->Follow();
    });
    for (const absl::Status& result : results) RETURN_IF_ERROR(result) << "a follower";
    return report;
  }

  // Whose the rollouts are that it publishes to from now on.
  void SetOwner(common::v1::WeightOwner owner) { publisher_->SetOwner(std::move(owner)); }

  // The trainer's own group still works.
  absl::Status Barrier() {
    std::vector<absl::Status> results(options_.ranks);
    OnEveryRank([&](int rank) { results[rank] = groups_[rank]->Barrier("check"); });
    for (const absl::Status& result : results) RETURN_IF_ERROR(result);
    return absl::OkStatus();
  }

  // What rank `rank` holds of a unit.
  at::Tensor master(int rank, size_t unit) const { return shards_[rank].units[unit].master; }

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
  // A replica of any number of ranks: each has the whole model.
  absl::Status MakeReshard(const TestModel& model) {
    for (int rank = 0; rank < options_.ranks; ++rank) {
      trainer::ReshardFeeds::Options feeds;
      feeds.trainer = weights::TrainerHoldings(model.Layout(1), {.dp_shard = options_.ranks});
      feeds.rank = rank;
      feeds.shards = shards_[rank];
      feeds.rollout = [model](int num_ranks) { return model.Layout(num_ranks); };
      feeds.manifest = model.manifest();
      feeds.bucket_bytes = options_.bucket_bytes;
      feeds.deltas = options_.transport == "delta";
      feeds_.push_back(std::make_unique<trainer::ReshardFeeds>(std::move(feeds)));
      followers_.push_back(std::make_unique<trainer::ReshardFollower>(
          feeds_.back().get(), groups_[rank].get(), GroupSecret(rank)));
    }
    transport_ = std::make_unique<trainer::SendByReshard>(feeds_[0].get(), groups_[0].get(),
                                                          absl::Seconds(60), GroupSecret(0));
    return absl::OkStatus();
  }

  std::string GroupSecret(int rank) const {
    const auto& secrets = options_.group_secrets;
    return rank < static_cast<int>(secrets.size()) ? secrets[rank] : "";
  }

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
  std::vector<trainer::RankShards> shards_;
  std::vector<std::unique_ptr<trainer::ReshardFeeds>> feeds_;
  std::vector<std::unique_ptr<trainer::ReshardFollower>> followers_;
  std::vector<std::unique_ptr<trainer::ShardGatherSource>> sources_;
  std::unique_ptr<trainer::SendTransport> transport_;
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
