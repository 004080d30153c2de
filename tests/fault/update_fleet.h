// UpdateFleet: a trainer of two ranks, two rollouts and a driver, each a process, and what the test
// does to them and asks of them.
//
//   UpdateFleet fleet(UPDATE_ACTOR, {.transport = "reshard", .update_timeout = absl::Seconds(4)});
//   ASSERT_OK(fleet.Start());
//   ASSERT_OK(fleet.Prepare(1));
//   fleet.Publish(1);
//   EXPECT_OK(fleet.Result(fleet.driver(), "answered", absl::Seconds(9)));
#ifndef TANDEM_TESTS_FAULT_UPDATE_FLEET_H_
#define TANDEM_TESTS_FAULT_UPDATE_FLEET_H_

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/comm/process_group.h"
#include "tandem/rollout/v1/weight_service.grpc.pb.h"
#include "tests/fault/actor_process.h"
#include "tests/fault/fault_matrix.h"
#include "tests/support/temp_folder.h"

namespace tandem::testing {

class UpdateFleet {
 public:
  struct Options {
    std::string transport = "reshard";
    absl::Duration update_timeout = absl::Seconds(15);
    std::string backend = "gloo";  // of all groups
    std::string policy = "all";    // or "available"
  };
  // `program` is update_actor.
  UpdateFleet(std::string program, Options options);

  absl::Status Start();
  // The trainer's next life. A rank of the last that stands still is kept so, the others are
  // killed.
  absl::Status RestartTrainer(ActorProcess* standing);
  absl::Status RestartRollout(int index);
  absl::Status RestartDriver();

  // Gives the trainer's ranks the weights of a version and has the other one follow.
  absl::Status Prepare(int64_t version);
  // Has the trainer's other rank take part in the next update, of the weights that are there.
  void Follow() { rank(1).Send("follow"); }
  // The driver asks the leader for it.
  void Publish(int64_t version);
  // Has an earlier life's leader asked for it.
  void PublishOn(const std::string& leader, int64_t version);

  // The result of the next event of this name: what the actor reports, or DEADLINE_EXCEEDED where
  // it reports nothing in time.
  static absl::Status Result(ActorProcess& actor, const std::string& event, absl::Duration timeout);
  // That of one replica in what the driver was answered; of an answer that is an error, that.
  static absl::Status ReplicaResult(const nlohmann::json& answered, const std::string& replica_id);

  // Whole: OK and the version, where the weights that are live, read anew, are those of the version
  // that the rollout states. DATA_LOSS names the tensor that is not. -1 before the first version.
  absl::StatusOr<int64_t> LiveVersion(int rollout, absl::Duration timeout);

  // Digest of the weights that are live, read anew.
  absl::StatusOr<std::string> LiveDigest(int rollout, absl::Duration timeout);

  ActorProcess& actor(Role role);
  ActorProcess& rollout(int index) { return *rollouts_[index].process; }
  ActorProcess& rank(int rank) { return *ranks_[rank].process; }
  ActorProcess& driver() { return *driver_.process; }
  const std::string& leader_address() const { return ranks_[0].address; }
  const std::string& rollout_address(int index) const { return rollouts_[index].address; }
  // Of the lives before this one.
  std::vector<std::unique_ptr<ActorProcess>>& former() { return former_; }
  std::string log() const;
  const std::string& folder() const { return folder_.path(); }

 private:
  struct Member {
    std::unique_ptr<ActorProcess> process;
    std::string address;
    std::unique_ptr<rollout::v1::WeightService::Stub> weights;  // of a rollout, once it was asked
  };
  void Spawn(const std::vector<std::string>& args, Member& member);
  static absl::Status AwaitReady(Member& member);
  void SpawnTrainer();
  absl::StatusOr<rollout::v1::GetDigestsResponse> AskDigests(int rollout, absl::Duration timeout);

  const std::string program_;
  const Options options_;
  const TempFolder folder_;
  std::unique_ptr<comm::StoreServer> store_;
  int incarnation_ = 0;
  std::array<Member, 2> ranks_;
  std::array<Member, 2> rollouts_;
  Member driver_;
  std::vector<std::unique_ptr<ActorProcess>> former_;
};

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_FAULT_UPDATE_FLEET_H_
