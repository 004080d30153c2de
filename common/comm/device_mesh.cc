#include "common/comm/device_mesh.h"

#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/comm/single_rank_group.h"
#include "common/status/status_macros.h"

namespace tandem::comm {
namespace {

absl::Status CheckShape(const MeshShape& shape, int rank) {
  const bool positive = shape.dp_replicate > 0 && shape.dp_shard > 0 && shape.tp > 0 &&
                        shape.sequence > 0 && shape.ep > 0;
  if (!positive || shape.dp_shard % shape.sequence != 0 || rank < 0 || rank >= shape.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("device mesh: expected positive sizes, a sequence size that divides dp_shard, "
                     "and a rank within the mesh; found dp_replicate ",
                     shape.dp_replicate, ", dp_shard ", shape.dp_shard, ", ep ", shape.ep, ", tp ",
                     shape.tp, ", sequence ", shape.sequence, ", rank ", rank));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceMesh>> DeviceMesh::Create(const MeshShape& shape, int rank,
                                                               const GroupMaker& make) {
  RETURN_IF_ERROR(CheckShape(shape, rank));
  auto mesh = absl::WrapUnique(new DeviceMesh());
  mesh->shape_ = shape;
  const auto join = [&](const std::string& name, int index, int rank_within,
                        int size) -> absl::StatusOr<ProcessGroup*> {
    if (size == shape.size() && mesh->world_ != nullptr) return mesh->world_;
    std::unique_ptr<ProcessGroup> group;
    if (size == 1) {
      GroupOptions alone;
      alone.name = name;
      group = CreateSingleRankGroup(alone);
    } else {
      const std::string full = size == shape.size() ? name : absl::StrCat(name, ".", index);
      ASSIGN_OR_RETURN(group, make(full, rank_within, size));
    }
    mesh->groups_.push_back(group.get());
    mesh->owned_.push_back(std::move(group));
    return mesh->groups_.back();
  };

  const int tensor = rank % shape.tp;
  const int expert = rank / shape.tp % shape.ep;
  const int shard = rank / shape.tp / shape.ep % shape.dp_shard;
  const int replicate = rank / shape.tp / shape.num_shards();
  const int sequence = shard / shape.sequence;
  const int num_shards = shape.num_shards();
  const int dense = shard * shape.ep + expert;  // among the shards of one copy
  // Joining waits for all members, so all ranks join the kinds of groups in one order; otherwise
  // two ranks could wait in different groups for each other.
  ASSIGN_OR_RETURN(mesh->world_, join("world", 0, rank, shape.size()));
  ASSIGN_OR_RETURN(mesh->shard_, join("shard", replicate * shape.tp + tensor, dense, num_shards));
  ASSIGN_OR_RETURN(mesh->replicate_,
                   join("replicate", dense * shape.tp + tensor, replicate, shape.dp_replicate));
  ASSIGN_OR_RETURN(mesh->tensor_, join("tensor", rank / shape.tp, tensor, shape.tp));
  const int sequence_groups = shape.dp_shard / shape.sequence;
  ASSIGN_OR_RETURN(
      mesh->sequence_,
      shape.sequence == num_shards
          ? absl::StatusOr<ProcessGroup*>(mesh->shard_)
          : join("sequence",
                 ((replicate * sequence_groups + sequence) * shape.ep + expert) * shape.tp + tensor,
                 shard % shape.sequence, shape.sequence));
  ASSIGN_OR_RETURN(mesh->expert_shard_,
                   shape.ep == 1
                       ? absl::StatusOr<ProcessGroup*>(mesh->shard_)
                       : join("expert_shard", (replicate * shape.ep + expert) * shape.tp + tensor,
                              shard, shape.dp_shard));
  ASSIGN_OR_RETURN(mesh->expert_,
                   shape.ep == num_shards
                       ? absl::StatusOr<ProcessGroup*>(mesh->shard_)
                       : join("expert", (replicate * shape.dp_shard + shard) * shape.tp + tensor,
                              expert, shape.ep));
  // `group` is the number of the group that is split, and `index` this rank's place in it.
  const auto split = [&](const std::string& name, int group, int index, int size,
                         int per_host) -> absl::StatusOr<HostGroups> {
    HostGroups groups;
    if (per_host == 0) return groups;
    const int hosts = size / per_host;
    ASSIGN_OR_RETURN(groups.within, join(name + "_within_host", group * hosts + index / per_host,
                                         index % per_host, per_host));
    ASSIGN_OR_RETURN(
        groups.across,
        join(name + "_across_hosts", group * per_host + index % per_host, index / per_host, hosts));
    return groups;
  };
  ASSIGN_OR_RETURN(mesh->shard_by_host_, split("shard", replicate * shape.tp + tensor, dense,
                                               num_shards, shape.shards_per_host()));
  ASSIGN_OR_RETURN(mesh->expert_shard_by_host_,
                   shape.ep == 1
                       ? absl::StatusOr<HostGroups>(mesh->shard_by_host_)
                       : split("expert_shard", (replicate * shape.ep + expert) * shape.tp + tensor,
                               shard, shape.dp_shard, shape.expert_shards_per_host()));
  return mesh;
}

DeviceMesh::DeviceMesh(ProcessGroup& world)
    : world_(&world), shard_(&world), expert_shard_(&world) {
  shape_.dp_shard = world.size();
  groups_.push_back(&world);
  for (ProcessGroup** group : {&replicate_, &tensor_, &sequence_, &expert_}) {
    GroupOptions alone;
    alone.name = "alone";
    owned_.push_back(CreateSingleRankGroup(alone));
    *group = owned_.back().get();
    groups_.push_back(*group);
  }
}

absl::Status DeviceMesh::status() const {
  for (const ProcessGroup* group : groups_) RETURN_IF_ERROR(group->status());
  return absl::OkStatus();
}

void DeviceMesh::Abort(absl::string_view reason) const {
  for (ProcessGroup* group : groups_) group->Abort(reason);
}

}  // namespace tandem::comm
