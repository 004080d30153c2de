// A replica of several tensor-parallel ranks within one process: an engine and its followers, each
// with a thread and a model of its own.
#ifndef TANDEM_TESTS_SERVICES_ROLLOUT_RANKS_REPLICA_H_
#define TANDEM_TESTS_SERVICES_ROLLOUT_RANKS_REPLICA_H_

#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "common/comm/process_group.h"
#include "common/model/random_init.h"
#include "common/model/transformer.h"
#include "services/rollout/engine/cache_size.h"
#include "services/rollout/engine/engine.h"
#include "services/rollout/ranks/rank_follower.h"
#include "services/rollout/ranks/rank_group.h"
#include "services/rollout/ranks/rank_leader.h"
#include "tests/services/rollout/engine/engine_fixture.h"
#include "tests/support/staged_weights.h"
#include "tests/support/status_matchers.h"

namespace tandem::rollout {

class Replica {
 public:
  struct Options {
    int size = 2;
    bool shared_memory = true;
    absl::Duration timeout = absl::Seconds(30);
  };

  Replica(const EngineOptions& engine, const model::ModelSpec& spec, const Options& options)
      : spec_(spec), ranks_(options.size) {
    auto store = comm::StoreServer::Start();
    EXPECT_OK(store.status());
    store_ = *std::move(store);
    std::vector<std::thread> joining;
    for (int rank = 0; rank < options.size; ++rank) {
      joining.emplace_back([&, rank] {
        RankGroupOptions group;
        group.rank = rank;
        group.size = options.size;
        group.rendezvous = {"127.0.0.1", store_->port(), "replica"};
        group.timeout = options.timeout;
        group.shared_memory = options.shared_memory;
        auto joined = RankGroup::Join(group);
        EXPECT_OK(joined.status());
        if (joined.ok()) ranks_[rank].group = *std::move(joined);
      });
    }
    for (std::thread& thread : joining) thread.join();
    for (Rank& rank : ranks_) {
      if (rank.group == nullptr) return;
      rank.model =
          std::make_unique<model::Transformer>(spec, model::UnitLimits{}, &rank.group->compute());
    }
    for (int rank = 1; rank < options.size; ++rank) {
      Rank& it = ranks_[rank];
      auto size = SizeCache(engine, *it.model);
      EXPECT_OK(size.status());
      auto follower = RankFollower::Create(size->cache, *it.model, it.group.get());
      EXPECT_OK(follower.status());
      it.follower = *std::move(follower);
      it.thread = std::thread([&it] { it.end = it.follower->Run(); });
    }
    leader_ = std::make_unique<RankLeader>(ranks_[0].group.get());
    EngineOptions of_leader = engine;
    of_leader.ranks = leader_.get();
    auto created = Engine::Create(of_leader, *ranks_[0].model, nullptr);
    EXPECT_OK(created.status());
    engine_ = *std::move(created);
  }

  ~Replica() {
    engine_.reset();  // says stop
    for (Rank& rank : ranks_) {
      if (rank.thread.joinable()) rank.thread.join();
    }
  }

  Engine& engine() { return *engine_; }
  RankGroup& group(int rank) { return *ranks_[rank].group; }
  RankFollower& follower(int rank) { return *ranks_[rank].follower; }
  // Why the follower's Run() returned; after its thread has.
  absl::Status EndOf(int rank) {
    ranks_[rank].thread.join();
    return ranks_[rank].end;
  }

  // Random weights of the whole model, each rank its part.
  void Stage(int rank, uint64_t seed) {
    auto arena = pair(rank).Staged();
    ASSERT_OK(arena.status());
    tandem::testing::StageRandom(spec_, seed, **arena);
  }

  // On every rank but those left out; the leader's answer.
  absl::StatusOr<CommitResult> Commit(int64_t version, uint64_t seed, int left_out = -1,
                                      absl::Duration patience = kPatience) {
    const absl::Time deadline = absl::Now() + patience;
    std::vector<std::thread> followers;
    for (int rank = 1; rank < static_cast<int>(ranks_.size()); ++rank) {
      Stage(rank, seed);
      if (rank == left_out) continue;
      followers.emplace_back([this, rank, version, deadline] {
        follower(rank).Commit(version, deadline).status().IgnoreError();
      });
    }
    Stage(0, seed);
    auto result = engine_->Commit(version, deadline);
    for (std::thread& thread : followers) thread.join();
    return result;
  }

  ArenaPair& pair(int rank) {
    return rank == 0 ? engine_->weights() : ranks_[rank].follower->weights();
  }

 private:
  struct Rank {
    std::unique_ptr<RankGroup> group;
    std::unique_ptr<model::Transformer> model;
    std::unique_ptr<RankFollower> follower;
    std::thread thread;
    absl::Status end;
  };

  const model::ModelSpec spec_;
  std::unique_ptr<comm::StoreServer> store_;
  std::vector<Rank> ranks_;
  std::unique_ptr<RankLeader> leader_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace tandem::rollout

#endif  // TANDEM_TESTS_SERVICES_ROLLOUT_RANKS_REPLICA_H_
