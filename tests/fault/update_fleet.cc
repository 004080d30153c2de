#include "tests/fault/update_fleet.h"

#include <csignal>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/rpc/channel.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"
#include "common/weights/tensor_digests.h"
#include "tandem/rollout/v1/weight_service.grpc.pb.h"
#include "tests/fault/actor_model.h"
#include "tests/support/program.h"

namespace tandem::testing {
namespace {

// Of a process that starts, on a machine that does much else.
constexpr absl::Duration kStart = absl::Seconds(60);

}  // namespace

UpdateFleet::UpdateFleet(std::string program, Options options)
    : program_(std::move(program)), options_(std::move(options)) {}

void UpdateFleet::Spawn(const std::vector<std::string>& args, Member& member) {
  member.weights.reset();
  member.process = std::make_unique<ActorProcess>(program_, args, folder_ / "log");
}

absl::Status UpdateFleet::AwaitReady(Member& member) {
  const auto ready = member.process->Await("ready", kStart);
  if (!ready.has_value()) return absl::InternalError("an actor did not start");
  if ((*ready)["code"] != "OK") return absl::InternalError(ready->dump());
  member.address = (*ready)["address"];
  return absl::OkStatus();
}

void UpdateFleet::SpawnTrainer() {
  ++incarnation_;
  for (int rank = 0; rank < kActorRanks; ++rank) {
    Spawn(
        {"trainer", absl::StrCat(rank), absl::StrCat(incarnation_), options_.transport,
         absl::StrCat(store_->port()), absl::StrCat(absl::ToInt64Seconds(options_.update_timeout)),
         options_.backend, options_.policy},
        ranks_[rank]);
  }
}

absl::Status UpdateFleet::Start() {
  ASSIGN_OR_RETURN(store_, comm::StoreServer::Start());
  SpawnTrainer();
  for (Member& rollout : rollouts_) Spawn({"rollout"}, rollout);
  Spawn({"driver"}, driver_);
  for (Member& rank : ranks_) RETURN_IF_ERROR(AwaitReady(rank));
  for (Member& rollout : rollouts_) RETURN_IF_ERROR(AwaitReady(rollout));
  return AwaitReady(driver_);
}

absl::Status UpdateFleet::RestartTrainer(ActorProcess* standing) {
  for (Member& rank : ranks_) {
    if (rank.process.get() != standing) rank.process->Kill();
    former_.push_back(std::move(rank.process));
  }
  SpawnTrainer();
  for (Member& rank : ranks_) RETURN_IF_ERROR(AwaitReady(rank));
  return absl::OkStatus();
}

absl::Status UpdateFleet::RestartRollout(int index) {
  Spawn({"rollout"}, rollouts_[index]);
  return AwaitReady(rollouts_[index]);
}

absl::Status UpdateFleet::RestartDriver() {
  Spawn({"driver"}, driver_);
  return AwaitReady(driver_);
}

absl::Status UpdateFleet::Prepare(int64_t version) {
  for (Member& rank : ranks_) {
    rank.process->Send(absl::StrCat("set ", version));
    if (!rank.process->Await("set", kStart).has_value())
      return absl::InternalError("a trainer rank is gone");
  }
  Follow();
  return absl::OkStatus();
}

void UpdateFleet::Publish(int64_t version) { PublishOn(leader_address(), version); }

void UpdateFleet::PublishOn(const std::string& leader, int64_t version) {
  driver().Send(absl::StrCat("publish ", leader, " ", version, " ",
                             absl::ToInt64Seconds(options_.update_timeout),
                             " r0=", rollouts_[0].address, " r1=", rollouts_[1].address));
}

absl::Status UpdateFleet::Result(ActorProcess& actor, const std::string& event,
                                 absl::Duration timeout) {
  const auto found = actor.Await(event, timeout);
  if (!found.has_value()) {
    return absl::DeadlineExceededError(
        absl::StrCat("no '", event, "' within ", absl::FormatDuration(timeout)));
  }
  if ((*found)["code"] == "OK") return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat(found->value("code", ""), ": ", found->value("error", "")));
}

absl::Status UpdateFleet::ReplicaResult(const nlohmann::json& answered,
                                        const std::string& replica_id) {
  if (answered["code"] != "OK") return absl::UnavailableError(answered.dump());
  if (answered["committed"][replica_id] == true) return absl::OkStatus();
  return absl::UnavailableError(answered["errors"][replica_id].get<std::string>());
}

absl::StatusOr<rollout::v1::GetDigestsResponse> UpdateFleet::AskDigests(int rollout,
                                                                        absl::Duration timeout) {
  auto& stub = rollouts_[rollout].weights;
  if (stub == nullptr) {
    stub = rollout::v1::WeightService::NewStub(rpc::MakeChannel(rollouts_[rollout].address, {}));
  }
  const auto context = rpc::MakeContext(timeout, {.wait_for_ready = true});
  rollout::v1::GetDigestsResponse found;
  RETURN_IF_ERROR(rpc::FromGrpcStatus(stub->GetDigests(context.get(), {}, &found)));
  return found;
}

absl::StatusOr<std::string> UpdateFleet::LiveDigest(int rollout, absl::Duration timeout) {
  ASSIGN_OR_RETURN(const auto found, AskDigests(rollout, timeout));
  return found.model_digest();
}

absl::StatusOr<int64_t> UpdateFleet::LiveVersion(int rollout, absl::Duration timeout) {
  const auto answer = AskDigests(rollout, timeout);
  if (absl::IsFailedPrecondition(answer.status())) return -1;
  RETURN_IF_ERROR(answer.status());
  const rollout::v1::GetDigestsResponse& found = *answer;
  const std::vector<weights::TensorDigest> expected = ActorModel(found.policy_version()).Digests();
  for (size_t i = 0; i < expected.size(); ++i) {
    const int index = static_cast<int>(i);
    if (index < found.digests_size() && found.digests(index).digest() == expected[i].digest()) {
      continue;
    }
    return absl::DataLossError(absl::StrCat("rollout ", rollout, " serves version ",
                                            found.policy_version(), ", but its tensor ",
                                            expected[i].name(), " is of another"));
  }
  return found.policy_version();
}

ActorProcess& UpdateFleet::actor(Role role) {
  switch (role) {
    case Role::kLeader:
      return rank(0);
    case Role::kOtherRank:
      return rank(1);
    case Role::kRollout:
      return rollout(0);
    case Role::kDriver:
      return driver();
  }
  std::abort();
}

std::string UpdateFleet::log() const { return ReadWhole(folder_ / "log"); }

}  // namespace tandem::testing
