// MeshShape: how the trainer's ranks are arranged.
#ifndef TANDEM_COMMON_COMM_MESH_SHAPE_H_
#define TANDEM_COMMON_COMM_MESH_SHAPE_H_

namespace tandem::comm {

// Dimensions of the mesh, outermost first: the ranks of one tensor-parallel group are neighbours.
// Rank ((replicate * dp_shard + shard) * ep + expert) * tp + tensor is at (replicate, shard, expert,
// tensor).
struct MeshShape {
  int dp_replicate = 1;  // copies of the training state; gradients are summed over them
  int dp_shard = 1;      // ranks over which one copy is sharded, together with those of ep
  int tp = 1;            // ranks over which one matrix product is split
  // Sequence-parallel ranks: neighbours within dp_shard that compute the same sequences, each a
  // part of the tokens (2309.14509).
  int sequence = 1;
  // Ranks over which whole experts are split (2006.16668). Each has tokens of its own and exchanges
  // rows with the others; an expert is sharded over dp_shard, all other parameters over num_shards().
  int ep = 1;
  int ranks_per_host = 0;  // which are neighbours; 0: not known

  int size() const { return dp_replicate * dp_shard * ep * tp; }
  // Ranks over which one copy of the parameters outside of experts is sharded.
  int num_shards() const { return dp_shard * ep; }
  // Ranks that compute the same sequences (those of a tensor or sequence group) are one data rank.
  int num_data_ranks() const { return dp_replicate * dp_shard * ep / sequence; }
  // Of the ranks that share one copy of the parameters outside of experts, and of one expert, those on
  // one host; 0 if they are not spread evenly over several hosts, several on each.
  int shards_per_host() const { return PerHost(num_shards(), tp); }
  int expert_shards_per_host() const { return PerHost(dp_shard, ep * tp); }

 private:
  // Of `size` ranks, each `stride` behind the one before.
  int PerHost(int size, int stride) const {
    if (ranks_per_host <= 0 || ranks_per_host % stride != 0) return 0;
    const int per_host = ranks_per_host / stride;
    return per_host > 1 && per_host < size && size % per_host == 0 ? per_host : 0;
  }
};

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_MESH_SHAPE_H_
