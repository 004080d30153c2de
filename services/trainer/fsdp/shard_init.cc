#include "services/trainer/fsdp/shard_init.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "absl/functional/function_ref.h"
#include "common/model/compare_parameters.h"
#include "common/model/load_parameters.h"
#include "common/model/random_init.h"
#include "common/status/status_macros.h"
#include "services/trainer/fsdp/offload_file.h"

namespace tandem::trainer {
namespace {

// Elements per piece of a rank's part, so that little of a large tensor is resident at a time.
constexpr int64_t kElementsAtOnce = int64_t{1} << 20;

// Writes elements [first, first + count) of a segment to `out`, of `dtype` on the CPU.
using Fill =
    absl::FunctionRef<absl::Status(int64_t first, int64_t count, at::ScalarType dtype, void* out)>;

// Calls `fill` for the part of the segment that the shard owns, if any, piece by piece.
absl::Status FillOwned(const model::Segment& segment, const UnitShard& shard, Fill fill) {
  const at::NoGradGuard no_grad;
  const int64_t end = std::min(segment.offset + segment.numel, shard.offset + shard.master.numel());
  for (int64_t begin = std::max(segment.offset, shard.offset); begin < end;
       begin += kElementsAtOnce) {
    const int64_t count = std::min(kElementsAtOnce, end - begin);
    at::Tensor owned = shard.master.narrow(0, begin - shard.offset, count);
    const at::ScalarType dtype = owned.scalar_type();
    at::Tensor filled = owned.is_cpu() ? owned : at::empty({count}, dtype);
    RETURN_IF_ERROR(fill(begin - segment.offset, count, dtype, filled.mutable_data_ptr()));
    if (!owned.is_cpu()) owned.copy_(filled);
    Evict(owned);
  }
  return absl::OkStatus();
}

void DrawSegment(const model::ModelSpec& spec, uint64_t seed, const model::ParameterTable& table,
                 model::ParameterTable::SegmentRef ref, std::vector<UnitShard>& shards) {
  const int unit = table.parameter(ref.parameter).unit;
  FillOwned(table.segment(ref), shards[unit],
            [&](int64_t first, int64_t count, at::ScalarType dtype, void* out) {
              model::RandomInit(spec, table, ref, seed, first, count, dtype, out);
              return absl::OkStatus();
            })
      .IgnoreError();
}

}  // namespace

absl::Status LoadShards(const io::ModelFolder& folder, const model::ParameterTable& table,
                        std::vector<UnitShard>& shards) {
  return model::LoadParameters(
      folder, table, [&](model::ParameterTable::SegmentRef ref, const model::StoredSource& source) {
        const model::Segment& segment = table.segment(ref);
        return FillOwned(segment, shards[table.parameter(ref.parameter).unit],
                         [&](int64_t first, int64_t count, at::ScalarType dtype, void* out) {
                           absl::Status copied =
                               model::CopySegment(segment, source, first, count, dtype, out);
                           source.ReleasePages();
                           return copied;
                         });
      });
}

void DrawShards(const model::ModelSpec& spec, uint64_t seed, const model::ParameterTable& table,
                std::vector<UnitShard>& shards) {
  for (const model::ParameterTable::SegmentRef ref : table.segments()) {
    DrawSegment(spec, seed, table, ref, shards);
  }
}

void DrawMissingValueHead(const model::ModelSpec& spec, uint64_t seed,
                          const io::ModelFolder& folder, const model::ParameterTable& table,
                          std::vector<UnitShard>& shards) {
  for (const model::ParameterTable::SegmentRef ref : table.segments()) {
    if (model::IsNewHead(table, ref, folder)) DrawSegment(spec, seed, table, ref, shards);
  }
}

}  // namespace tandem::trainer
