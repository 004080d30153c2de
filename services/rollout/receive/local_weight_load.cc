#include "services/rollout/receive/local_weight_load.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/io/dtype.h"
#include "common/model/load_parameters.h"
#include "common/model/torch_dtype.h"
#include "common/status/status_macros.h"
#include "common/telemetry/log.h"
#include "common/weights/bucket_plan.h"
#include "common/weights/receive_table.h"
#include "common/weights/tensor_digests.h"
#include "common/weights/tensor_sink.h"

namespace tandem::rollout {
namespace {

// Bytes read, stored and digested at a time.
constexpr int64_t kPortionBytes = int64_t{16} << 20;

// Buckets of at most kPortionBytes of one tensor, in manifest order.
absl::StatusOr<weights::TransferPlan> PortionsOf(const common::v1::Manifest& manifest) {
  ASSIGN_OR_RETURN(weights::TransferPlan plan, weights::PlanOfManifest(manifest));
  for (int tensor = 0; tensor < manifest.tensors_size(); ++tensor) {
    const int64_t size = plan.tensor_bytes[tensor];
    for (int64_t offset = 0; offset < size; offset += kPortionBytes) {
      common::v1::Bucket& bucket = plan.buckets.emplace_back();
      bucket.set_size_bytes(std::min(kPortionBytes, size - offset));
      common::v1::BucketPiece& piece = *bucket.add_pieces();
      piece.set_tensor(tensor);
      piece.set_tensor_offset(offset);
      piece.set_size_bytes(bucket.size_bytes());
    }
  }
  return plan;
}

// Takes the tensors of a folder, which come in manifest order, as an update's buckets.
class FolderReader {
 public:
  FolderReader(const model::ParameterTable& table, const weights::TransferPlan& plan,
               weights::DeviceOps& ops, weights::TensorSink& sink)
      : table_(table), plan_(plan), ops_(ops), sink_(sink) {}

  absl::Status Take(model::ParameterTable::SegmentRef ref, const model::StoredSource& source) {
    const model::Segment& segment = table_.segment(ref);
    const int index = tensor_++;
    const auto& tensors = plan_.manifest.tensors();
    if (index >= tensors.size() || tensors[index].name() != segment.name) {
      return absl::InternalError(
          absl::StrCat("tensor ", segment.name, " is not number ", index, " of the manifest"));
    }
    ASSIGN_OR_RETURN(const io::DType dtype, io::ParseDType(tensors[index].dtype()));
    const at::ScalarType type = model::TorchDType(dtype).value_or(at::kFloat);
    const int64_t element = io::SizeOf(dtype);
    if (segment.numel * element != plan_.tensor_bytes[index]) {
      return absl::InternalError(absl::StrCat("tensor ", segment.name, " has ",
                                              segment.numel * element, " bytes, expected ",
                                              plan_.tensor_bytes[index]));
    }
    for (; IsOf(index); ++bucket_) {
      RETURN_IF_ERROR(Take(segment, source, type, element));
    }
    return absl::OkStatus();
  }

 private:
  bool IsOf(int tensor) const {
    return bucket_ < static_cast<int>(plan_.buckets.size()) &&
           plan_.buckets[bucket_].pieces(0).tensor() == tensor;
  }

  // Takes the next bucket, a part of the segment.
  absl::Status Take(const model::Segment& segment, const model::StoredSource& source,
                    at::ScalarType type, int64_t element) {
    const weights::Bucket& bucket = plan_.buckets[bucket_];
    const weights::BucketSpan all = weights::WholeBucket(bucket);
    const int64_t first = bucket.pieces(0).tensor_offset() / element;
    const int64_t count = bucket.size_bytes() / element;
    // The CPU casts straight into host memory; packed tensors and devices get a copy of a buffer.
    const absl::Span<std::byte> place = sink_.Place(bucket_, all);
    if (ops_.on_host() && !place.empty()) {
      RETURN_IF_ERROR(model::CopySegment(segment, source, first, count, type, place.data()));
      return sink_.Digest(bucket_);
    }
    if (!buffer_.defined()) buffer_ = at::empty({kPortionBytes}, at::kByte);
    RETURN_IF_ERROR(model::CopySegment(segment, source, first, count, type, buffer_.data_ptr()));
    RETURN_IF_ERROR(sink_.Unpack(bucket_, all, buffer_.narrow(0, 0, bucket.size_bytes())));
    return sink_.Digest(bucket_);
  }

  const model::ParameterTable& table_;
  const weights::TransferPlan& plan_;
  weights::DeviceOps& ops_;
  weights::TensorSink& sink_;
  int tensor_ = 0;  // the next one
  int bucket_ = 0;  // the next one
  at::Tensor buffer_;
};

// Returns the model's digest.
absl::StatusOr<std::string> Stage(const io::ModelFolder& folder, const model::ParameterTable& table,
                                  WeightStore& store) {
  ASSIGN_OR_RETURN(const weights::TransferPlan plan, PortionsOf(store.manifest()));
  ASSIGN_OR_RETURN(const auto sink, weights::TensorSink::Create(plan, store));
  FolderReader reader(table, plan, store.ops(), *sink);
  RETURN_IF_ERROR(model::LoadParameters(
      folder, table, [&](model::ParameterTable::SegmentRef ref, const model::StoredSource& source) {
        return reader.Take(ref, source);
      }));
  return weights::ModelDigest(sink->digests());
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
  const absl::StatusOr<std::string> digest = Stage(folder, table, store);
  absl::Status status = digest.status();
  if (digest.ok()) status = store.Commit(policy_version, /*incarnation=*/0, *digest).status();
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
