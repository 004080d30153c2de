// DeviceMesh: the process groups of one rank, one per dimension of the mesh.
//
//   ASSIGN_OR_RETURN(auto mesh, DeviceMesh::Create(shape, rank, make));
//   // Among the ranks that share one copy of the state, and among the owners of the same shard.
//   ASSIGN_OR_RETURN(auto gathered, mesh->shard().AllGather(full, shard, "layers.3"));
//   ASSIGN_OR_RETURN(auto summed, mesh->replicate().AllReduce(gradients, ReduceOp::kSum, "step"));
//
// Threads: as in ProcessGroup, one thread per rank issues the operations of all groups, in the same
// order on every rank of each group.
#ifndef TANDEM_COMMON_COMM_DEVICE_MESH_H_
#define TANDEM_COMMON_COMM_DEVICE_MESH_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/comm/mesh_shape.h"
#include "common/comm/process_group.h"

namespace tandem::comm {

// The ranks of a group that is spread evenly over hosts, once by host and once across: rank i of the
// group is rank i % within.size() of the host i / within.size().
struct HostGroups {
  ProcessGroup* within = nullptr;  // of this rank's host
  ProcessGroup* across = nullptr;  // those with this rank's place in each host

  bool exist() const { return within != nullptr; }
  int num_hosts() const { return exist() ? across->size() : 1; }
};

class DeviceMesh {
 public:
  // Joins the group `name` ("shard.3") as `rank` of `size`. Called on every member.
  using GroupMaker = std::function<absl::StatusOr<std::unique_ptr<ProcessGroup>>(
      const std::string& name, int rank, int size)>;

  // Joins all groups of `rank`, in the same order on every rank. Dimensions that span all ranks
  // share one group; a group of one rank needs no rendezvous. Errors: those of `make`;
  // INVALID_ARGUMENT if the shape is invalid.
  static absl::StatusOr<std::unique_ptr<DeviceMesh>> Create(const MeshShape& shape, int rank,
                                                            const GroupMaker& make);

  // A mesh of one dimension, dp_shard, over the ranks of `world`, which must outlive the mesh.
  explicit DeviceMesh(ProcessGroup& world);

  const MeshShape& shape() const { return shape_; }
  int rank() const { return world_->rank(); }
  int size() const { return world_->size(); }

  ProcessGroup& world() const { return *world_; }
  // Ranks over which parameters outside of experts are sharded: dp_shard x ep.
  ProcessGroup& shard() const { return *shard_; }
  // Ranks over which one expert is sharded: dp_shard. The same as shard() without ep.
  ProcessGroup& expert_shard() const { return *expert_shard_; }
  // Of the ranks of shard() and expert_shard(), if several hosts have several of them each.
  const HostGroups& shard_by_host() const { return shard_by_host_; }
  const HostGroups& expert_shard_by_host() const { return expert_shard_by_host_; }
  // Ranks that split the experts: ep.
  ProcessGroup& expert() const { return *expert_; }
  ProcessGroup& replicate() const { return *replicate_; }
  ProcessGroup& tensor() const { return *tensor_; }
  ProcessGroup& sequence() const { return *sequence_; }

  // See MeshShape::num_data_ranks().
  int num_data_ranks() const { return shape_.num_data_ranks(); }
  int data_rank() const {
    const int row = rank() / shape_.tp;
    return row / shape_.ep / shape_.sequence * shape_.ep + row % shape_.ep;
  }
  // True on one rank per data rank: the one that counts results which all of them computed.
  bool leads_data_rank() const { return tensor_->rank() == 0 && sequence_->rank() == 0; }

  // The first error of a group, or OK. Any thread.
  absl::Status status() const;
  // Aborts every group. Any thread.
  void Abort(absl::string_view reason) const;

 private:
  DeviceMesh() = default;

  MeshShape shape_;
  std::vector<std::unique_ptr<ProcessGroup>> owned_;
  std::vector<ProcessGroup*> groups_;  // without duplicates
  ProcessGroup* world_ = nullptr;
  ProcessGroup* shard_ = nullptr;
  ProcessGroup* expert_shard_ = nullptr;
  ProcessGroup* expert_ = nullptr;
  ProcessGroup* replicate_ = nullptr;
  ProcessGroup* tensor_ = nullptr;
  ProcessGroup* sequence_ = nullptr;
  HostGroups shard_by_host_;
  HostGroups expert_shard_by_host_;
};

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_DEVICE_MESH_H_
