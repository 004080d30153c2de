// update_actor: one role of a weight update in a process of its own, told what to do by a test.
//
//   update_actor rollout
//   update_actor trainer RANK INCARNATION TRANSPORT STORE_PORT TIMEOUT_SECONDS BACKEND POLICY
//   update_actor driver
//
// Commands come as lines, events leave as one JSON object a line; "ready" is the first. All know
//   fault none|cut|delay|loss     of the network; answers "fault"
//   memory                        of tensors: answers "memory", with bytes now and the most at once
//                                 since it was asked last
// A rollout knows
//   hold PHASE                    answers "hold"; stands still there once, says "at", and goes on
//                                 after "go"
// A trainer rank knows
//   set VERSION                   makes the weights those of the version; answers "set"
//   follow                        takes part in the next update, not the leader; answers "followed"
// and the leader says "published" after an update, whoever asked for it. A driver knows
//   publish LEADER VERSION TIMEOUT_SECONDS ID=ADDRESS...      answers "answered"
//
// It ends with its parent.
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/debugging/failure_signal_handler.h"
#include "absl/debugging/symbolize.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/comm/choose_group.h"
#include "common/comm/process_group.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"
#include "nlohmann/json.hpp"
#include "services/rollout/receive/worker.h"
#include "services/trainer/fsdp/tensor_memory.h"
#include "services/trainer/publish/reshard_follower.h"
#include "services/trainer/publish/send_by_broadcast.h"
#include "services/trainer/publish/send_by_reshard.h"
#include "services/trainer/publish/shard_gather_source.h"
#include "services/trainer/publish/weight_publisher.h"
#include "tandem/trainer/v1/trainer_service.grpc.pb.h"
#include "tests/fakes/fake_rollout.h"
#include "tests/fault/actor_model.h"
#include "tests/fault/socket_faults.h"

namespace tandem::testing {
namespace {

using Words = std::vector<std::string>;

constexpr absl::Duration kHold = absl::Seconds(30);
constexpr absl::Duration kDelay = absl::Seconds(2);
// Of the trainer's own group, whose collectives may take longer than an update.
constexpr absl::Duration kCollectiveTimeout = absl::Seconds(30);
// How much longer a driver waits than the trainer, as `tandem` does.
constexpr absl::Duration kDriverSlack = absl::Seconds(4);

void Say(nlohmann::json event) {
  static absl::Mutex mu;
  absl::MutexLock lock(&mu);
  std::printf("%s\n", event.dump().c_str());
  std::fflush(stdout);
}

nlohmann::json Event(const char* name, const absl::Status& status) {
  return {{"event", name},
          {"code", absl::StatusCodeToString(status.code())},
          {"error", std::string(status.message())}};
}

int64_t Number(const std::string& word) {
  int64_t number = 0;
  if (!absl::SimpleAtoi(word, &number)) std::abort();
  return number;
}

class Actor {
 public:
  virtual ~Actor() = default;
  virtual absl::Status Start() = 0;
  virtual std::string address() const { return ""; }
  // On the thread that reads commands; must return at once.
  virtual void Do(const Words& words) = 0;
};

class RolloutActor : public Actor {
 public:
  absl::Status Start() override {
    FakeWeightStore& store = rollout_.store;
    store.on_prepare = [this] {
      staged_ = 0;
      Pass("begin");
    };
    // Once when the receiver checks sizes, then when bytes arrive.
    store.on_staged = [this](int index) {
      if (index == kActorTensors / 2 && ++staged_ == 2) Pass("transfer");
    };
    store.on_finished = [this, &store](int) {
      if (store.finished.size() == kActorTensors) Pass("verify");
    };
    store.on_commit = [this] { Pass("commit"); };
    return rollout_.status;
  }
  std::string address() const override { return rollout_.address(); }

  void Do(const Words& words) override {
    absl::MutexLock lock(&mu_);
    if (words[0] == "go") go_ = true;
    if (words[0] != "hold") return;
    held_phase_ = words[1];
    Say({{"event", "hold"}});
  }

 private:
  void Pass(const std::string& phase) {
    absl::MutexLock lock(&mu_);
    if (held_phase_ != phase) return;
    held_phase_.clear();
    Say({{"event", "at"}, {"phase", phase}});
    mu_.AwaitWithTimeout(absl::Condition(&go_), kHold);
    go_ = false;
  }

  FakeRollout rollout_{ActorModel(0)};
  int staged_ = 0;  // the receiver's thread only
  absl::Mutex mu_;
  std::string held_phase_ ABSL_GUARDED_BY(mu_);
  bool go_ ABSL_GUARDED_BY(mu_) = false;
};

class TrainerActor : public Actor, public trainer::v1::TrainerService::Service {
 public:
  explicit TrainerActor(const Words& args)
      : rank_(static_cast<int>(Number(args[0]))),
        incarnation_(Number(args[1])),
        transport_(args[2]),
        store_port_(static_cast<int>(Number(args[3]))),
        timeout_(absl::Seconds(Number(args[4]))),
        backend_(args[5]),
        policy_(args[6] == "available" ? trainer::UpdatePolicy::kAvailable
                                       : trainer::UpdatePolicy::kAll) {}

  absl::Status Start() override {
    RETURN_IF_ERROR(MakeSender());
    if (rank_ > 0) return absl::OkStatus();
    trainer::WeightPublisher::Options options;
    options.transport = sender_.get();
    options.incarnation = incarnation_;
    options.backend = transport_ == "broadcast" ? "gloo" : "socket";
    options.blame_grace = absl::Milliseconds(500);
    options.backend = backend_;
    options.policy = policy_;
    ASSIGN_OR_RETURN(publisher_, trainer::WeightPublisher::Create(options));
    ASSIGN_OR_RETURN(server_, rpc::Server::Start({.role = "trainer"}, {this}));
    return absl::OkStatus();
  }
  std::string address() const override { return rank_ == 0 ? server_->address() : ""; }

  void Do(const Words& words) override {
    if (words[0] == "set") {
      const TestModel model = ActorModel(Number(words[1]));
      for (size_t u = 0; u < model.units.size(); ++u)
        shards_.units[u].master.copy_(model.Shard(u, rank_, kActorRanks));
      Say({{"event", "set"}});
    } else if (words[0] == "follow") {
      collectives_.Add([this] {
        Say(Event("followed", source_ != nullptr ? source_->Follow() : follower_->Follow()));
      });
    }
  }

  grpc::Status PublishWeights(grpc::ServerContext* context,
                              const trainer::v1::PublishWeightsRequest* asked,
                              trainer::v1::PublishWeightsResponse* answer) override {
    context->AddTrailingMetadata("grpc-retry-pushback-ms", "-1");  // as the service does
    absl::Notification done;
    grpc::Status status;
    collectives_.Add([&] {
      status = rpc::ToGrpcStatus(Publish(*asked, *answer));
      done.Notify();
    });
    done.WaitForNotification();
    return status;
  }

 private:
  absl::Status MakeSender() {
    comm::GroupOptions options;
    options.name = "fsdp";
    options.rank = rank_;
    options.size = kActorRanks;
    options.rendezvous = {"127.0.0.1", store_port_, absl::StrCat("fsdp/", incarnation_)};
    options.timeout = kCollectiveTimeout;
    ASSIGN_OR_RETURN(world_, comm::CreateGroupOf(backend_, options));
    const TestModel model = ActorModel(0);
    shards_.rank = rank_;
    shards_.ranks = kActorRanks;
    for (size_t u = 0; u < model.units.size(); ++u) {
      shards_.units.push_back({.master = model.Shard(u, rank_, kActorRanks),
                               .numel = model.UnitNumel(u),
                               .padded_numel = model.Padded(u, kActorRanks)});
    }
    if (transport_ == "broadcast") {
      ASSIGN_OR_RETURN(plan_, weights::MakeTransferPlan(model.manifest(), kActorBucketBytes));
      ASSIGN_OR_RETURN(source_, trainer::ShardGatherSource::Create(plan_, shards_, world_.get()));
      sender_ = std::make_unique<trainer::SendByBroadcast>(
          [model](int num_ranks) { return model.Layout(num_ranks); }, source_.get(),
          kCollectiveTimeout);
      return absl::OkStatus();
    }
    trainer::ReshardFeeds::Options feeds;
    feeds.trainer = weights::TrainerHoldings(model.Layout(1), {.dp_shard = kActorRanks});
    feeds.rank = rank_;
    feeds.shards = shards_;
    feeds.rollout = [model](int num_ranks) { return model.Layout(num_ranks); };
    feeds.manifest = model.manifest();
    feeds.bucket_bytes = kActorBucketBytes;
    feeds.deltas = transport_ == "delta";
    feeds_ = std::make_unique<trainer::ReshardFeeds>(std::move(feeds));
    follower_ = std::make_unique<trainer::ReshardFollower>(feeds_.get(), world_.get());
    sender_ =
        std::make_unique<trainer::SendByReshard>(feeds_.get(), world_.get(), kCollectiveTimeout);
    return absl::OkStatus();
  }

  absl::Status Publish(const trainer::v1::PublishWeightsRequest& asked,
                       trainer::v1::PublishWeightsResponse& answer) {
    std::vector<trainer::ReplicaEndpoint> replicas;
    for (const auto& replica : asked.replicas())
      replicas.push_back({replica.replica_id(), {replica.rank_addresses(0)}});
    const auto report = publisher_->Publish(asked.policy_version(), replicas, timeout_);
    Say(Event("published", report.status()));
    RETURN_IF_ERROR(report.status());
    answer.set_policy_version(report->policy_version);
    for (const auto& replica : report->replicas) {
      auto& result = *answer.add_replicas();
      result.set_replica_id(replica.id);
      result.set_committed(replica.committed);
      result.set_error(std::string(replica.error.message()));
    }
    return absl::OkStatus();
  }

  const int rank_;
  const int64_t incarnation_;
  const std::string transport_;
  const int store_port_;
  const absl::Duration timeout_;
  const std::string backend_;
  const trainer::UpdatePolicy policy_;
  std::unique_ptr<comm::ProcessGroup> world_;
  trainer::RankShards shards_;
  weights::TransferPlan plan_;
  std::unique_ptr<trainer::ShardGatherSource> source_;
  std::unique_ptr<trainer::ReshardFeeds> feeds_;
  std::unique_ptr<trainer::ReshardFollower> follower_;
  std::unique_ptr<trainer::SendTransport> sender_;
  std::unique_ptr<trainer::WeightPublisher> publisher_;
  std::unique_ptr<rpc::Server> server_;
  rollout::Worker collectives_{[] {}};  // the collective thread; last: it uses the above
};

class DriverActor : public Actor {
 public:
  absl::Status Start() override { return absl::OkStatus(); }

  void Do(const Words& words) override {
    if (words[0] == "publish") calls_.Add([this, words] { Publish(words); });
  }

 private:
  void Publish(const Words& words) {
    auto& stub = stubs_[words[1]];
    if (stub == nullptr) {
      stub = trainer::v1::TrainerService::NewStub(rpc::MakeChannel(words[1]));
    }
    trainer::v1::PublishWeightsRequest request;
    request.set_policy_version(Number(words[2]));
    for (size_t i = 4; i < words.size(); ++i) {
      const std::pair<std::string, std::string> replica = absl::StrSplit(words[i], '=');
      auto& added = *request.add_replicas();
      added.set_replica_id(replica.first);
      added.add_rank_addresses(replica.second);
    }
    const auto context = rpc::MakeContext(absl::Seconds(Number(words[3])) + kDriverSlack);
    trainer::v1::PublishWeightsResponse response;
    nlohmann::json answered = Event(
        "answered", rpc::FromGrpcStatus(stub->PublishWeights(context.get(), request, &response)));
    for (const auto& replica : response.replicas()) {
      answered["committed"][replica.replica_id()] = replica.committed();
      answered["errors"][replica.replica_id()] = replica.error();
    }
    Say(std::move(answered));
  }

  std::map<std::string, std::unique_ptr<trainer::v1::TrainerService::Stub>> stubs_;
  rollout::Worker calls_{[] {}};
};

void SetFault(const std::string& fault) {
  if (fault == "cut") CutConnections();
  if (fault == "none") SetSocketFault(SocketFault::kNone);
  if (fault == "loss") SetSocketFault(SocketFault::kLoss);
  if (fault == "delay") {
    SetSocketFault(SocketFault::kSilence);
    std::thread([] {
      absl::SleepFor(kDelay);
      SetSocketFault(SocketFault::kNone);
    }).detach();
  }
  Say({{"event", "fault"}});
}

void TellMemory() {
  Say({{"event", "memory"},
       {"bytes", trainer::TensorMemory::current_bytes()},
       {"peak_bytes", trainer::TensorMemory::peak_bytes()}});
  trainer::TensorMemory::ResetPeak();
}

int Run(const Words& args) {
  trainer::TensorMemory::Install();
  std::unique_ptr<Actor> actor;
  if (args[0] == "rollout") actor = std::make_unique<RolloutActor>();
  if (args[0] == "trainer")
    actor = std::make_unique<TrainerActor>(Words(args.begin() + 1, args.end()));
  if (args[0] == "driver") actor = std::make_unique<DriverActor>();
  const absl::Status started = actor->Start();
  nlohmann::json ready = Event("ready", started);
  if (started.ok()) ready["address"] = actor->address();
  Say(ready);
  std::string line;
  while (std::getline(std::cin, line)) {
    const Words words = absl::StrSplit(line, ' ');
    if (words[0] == "fault")
      SetFault(words[1]);
    else if (words[0] == "memory")
      TellMemory();
    else
      actor->Do(words);
  }
  _exit(0);  // threads may be in the middle of anything
}

}  // namespace
}  // namespace tandem::testing

int main(int argc, char** argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  absl::InitializeSymbolizer(argv[0]);
  absl::InstallFailureSignalHandler({});  // a crash is to be seen in the log
  if (argc < 2) return 2;
  return tandem::testing::Run({argv + 1, argv + argc});
}
