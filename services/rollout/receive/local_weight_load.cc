#include "services/rollout/receive/local_weight_load.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/model/load_parameters.h"
#include "common/status/status_macros.h"
#include "common/telemetry/log.h"
#include "common/weights/manifest.h"
#include "common/weights/tensor_digests.h"

namespace tandem::rollout {
namespace {

absl::Status Stage(const io::ModelFolder& folder, const model::ParameterTable& table,
                   WeightStore& store, std::vector<weights::TensorDigest>& digests) {
  const auto& manifest = store.manifest();
  return model::LoadParameters(
      folder, table,
      [&](model::ParameterTable::SegmentRef ref, const io::TensorView& tensor) -> absl::Status {
        const model::Segment& segment = table.segment(ref);
        const int index = static_cast<int>(digests.size());
        if (index >= manifest.tensors_size() || manifest.tensors(index).name() != segment.name) {
          return absl::InternalError(
              absl::StrCat("tensor ", segment.name, " is not number ", index, " of the manifest"));
        }
        const std::string& dtype = manifest.tensors(index).dtype();
        const absl::Span<std::byte> bytes = store.Staged(index);
        const at::ScalarType type = dtype == "bfloat16"  ? at::kBFloat16
                                    : dtype == "float16" ? at::kHalf
                                                         : at::kFloat;
        const int64_t size = segment.numel * static_cast<int64_t>(c10::elementSize(type));
        const bool is_packed = bytes.empty() && store.packs();
        if (static_cast<int64_t>(bytes.size()) != size && !is_packed) {
          return absl::InternalError(
              absl::StrCat("tensor ", segment.name, ": its memory has ", bytes.size(), " bytes"));
        }
        weights::DeviceOps& ops = store.ops();
        // Cast where the host can, which for another memory or order is a buffer.
        const bool in_place = ops.on_host() && !is_packed;
        std::vector<std::byte> buffer(in_place ? 0 : static_cast<size_t>(size));
        const absl::Span<std::byte> cast = in_place ? bytes : absl::MakeSpan(buffer);
        RETURN_IF_ERROR(model::CopySegment(segment, tensor, 0, segment.numel, type, cast.data()));
        if (is_packed) {
          store.WriteStaged(index, 0, cast);
        } else if (!in_place) {
          RETURN_IF_ERROR(weights::WriteBytes(ops, cast, bytes.data()));
        }
        weights::DigestSum sum;
        RETURN_IF_ERROR(ops.Digest(
            {weights::RunOfHeld(manifest.tensors(index), is_packed ? cast : bytes)}, {&sum, 1}));
        digests.push_back(weights::MakeTensorDigest(manifest.tensors(index), sum));
        return is_packed ? absl::OkStatus() : store.Arrived(index, 0, size);
      });
}

absl::Status Load(const io::ModelFolder& folder, const model::ParameterTable& table,
                  WeightStore& store, int64_t policy_version) {
  if (store.live_version() >= policy_version) {
    return absl::FailedPreconditionError(absl::StrCat("version ", store.live_version(),
                                                      " is live; ", folder.path(),
                                                      " would be version ", policy_version));
  }
  const auto entered = store.ops().Enter();
  RETURN_IF_ERROR(store.PrepareStaging());
  std::vector<weights::TensorDigest> digests;
  absl::Status status = Stage(folder, table, store, digests);
  if (status.ok())
    status =
        store.Commit(policy_version, /*incarnation=*/0, weights::ModelDigest(digests)).status();
  if (!status.ok()) {
    store.DropStaged();
    return status;
  }
  telemetry::LogInfo("weights loaded", {{"folder", folder.path()}, {"bytes", folder.size_bytes()}});
  return absl::OkStatus();
}

}  // namespace

absl::Status LoadLocalWeights(const io::ModelFolder& folder, const model::ParameterTable& table,
                              WeightReceiver& receiver, int64_t policy_version) {
  return receiver.RunExclusive(
      [&](WeightStore& store) { return Load(folder, table, store, policy_version); });
}

absl::Status ReloadLocalWeights(const std::string& path, const model::ParameterTable& table,
                                WeightStore& store, int64_t policy_version) {
  ASSIGN_OR_RETURN(const io::ModelFolder folder, io::ModelFolder::Open(path));
  return Load(folder, table, store, policy_version);
}

}  // namespace tandem::rollout
