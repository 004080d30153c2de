#include "services/trainer/checkpoint/sharded_checkpoint.h"

#include <ATen/ATen.h>
#include <xxhash.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "common/io/safetensors.h"
#include "common/io/safetensors_writer.h"
#include "common/status/status_macros.h"

namespace tandem::trainer {
namespace {

constexpr int64_t kPieceBytes = int64_t{16} << 20;
constexpr const char* kKinds[] = {"master", "exp_avg", "exp_avg_sq"};

class Digest {
 public:
  Digest() : state_(XXH3_createState(), XXH3_freeState) { XXH3_128bits_reset(state_.get()); }
  void Update(absl::Span<const std::byte> bytes) {
    XXH3_128bits_update(state_.get(), bytes.data(), bytes.size());
  }
  std::string Hex() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(state_.get());
    return absl::StrFormat("%016x%016x", hash.high64, hash.low64);
  }

 private:
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state_;
};

std::string TensorName(const model::Unit& unit, int kind) {
  return absl::StrCat(unit.name, ".", kKinds[kind]);
}

// The file has been checked to hold what the model needs.
absl::StatusOr<io::SafetensorsFile> OpenShard(const std::string& folder,
                                              const CheckpointManifest& manifest, int rank,
                                              ShardedModel& model) {
  const std::string path = absl::StrCat(folder, "/", manifest.files[rank].name);
  ASSIGN_OR_RETURN(io::SafetensorsFile file, io::SafetensorsFile::Open(path));
  const std::vector<model::Unit>& units = model.transformer().table().units();
  const std::vector<UnitShard>& shards = model.shards();
  for (size_t u = 0; u < units.size(); ++u) {
    for (int kind = 0; kind < 3; ++kind) {
      const std::string name = TensorName(units[u], kind);
      ASSIGN_OR_RETURN(const io::TensorView view, file.Find(name));
      if (view.dtype != io::DType::kF32 || view.num_elements() != shards[u].master.numel()) {
        return absl::DataLossError(absl::StrFormat(
            "%s: %s: expected %d float32 elements, found %d %s", path, name,
            shards[u].master.numel(), view.num_elements(), io::TorchName(view.dtype)));
      }
    }
  }
  return file;
}

}  // namespace

absl::StatusOr<ShardFile> WriteShard(const std::string& folder, int rank, int num_ranks,
                                     ShardedModel& model, AdamW& optimizer) {
  const std::vector<model::Unit>& units = model.transformer().table().units();
  const std::vector<UnitShard>& shards = model.shards();
  std::vector<io::TensorDeclaration> tensors;
  for (size_t u = 0; u < units.size(); ++u) {
    for (int kind = 0; kind < 3; ++kind) {
      tensors.push_back({TensorName(units[u], kind), io::DType::kF32, {shards[u].master.numel()}});
    }
  }
  ShardFile out;
  out.name = absl::StrFormat("rank-%d-of-%d.safetensors", rank, num_ranks);
  ASSIGN_OR_RETURN(io::SafetensorsWriter writer,
                   io::SafetensorsWriter::Create(absl::StrCat(folder, "/", out.name), tensors));
  Digest digest;
  for (size_t u = 0; u < units.size(); ++u) {
    const at::Tensor contents[] = {shards[u].master, optimizer.first_moments()[u],
                                   optimizer.second_moments()[u]};
    for (int kind = 0; kind < 3; ++kind) {
      const at::Tensor tensor = contents[kind].to(at::kCPU).contiguous();
      const auto bytes = absl::MakeConstSpan(static_cast<const std::byte*>(tensor.const_data_ptr()),
                                             static_cast<size_t>(tensor.nbytes()));
      digest.Update(bytes);
      RETURN_IF_ERROR(writer.Append(TensorName(units[u], kind), bytes));
      out.size_bytes += static_cast<int64_t>(bytes.size());
    }
  }
  RETURN_IF_ERROR(writer.Commit());
  out.digest = digest.Hex();
  return out;
}

absl::Status VerifyShard(const std::string& folder, const CheckpointManifest& manifest, int rank,
                         ShardedModel& model) {
  ASSIGN_OR_RETURN(const io::SafetensorsFile file, OpenShard(folder, manifest, rank, model));
  Digest digest;
  for (const io::TensorView& tensor : file.tensors()) {
    for (size_t at = 0; at < tensor.bytes.size(); at += kPieceBytes) {
      digest.Update(tensor.bytes.subspan(at, kPieceBytes));
    }
  }
  if (digest.Hex() != manifest.files[rank].digest) {
    return absl::DataLossError(absl::StrFormat(
        "%s is damaged: its digest is %s, and manifest.json says %s; use another checkpoint",
        file.path(), digest.Hex(), manifest.files[rank].digest));
  }
  return absl::OkStatus();
}

absl::Status ReadShard(const std::string& folder, const CheckpointManifest& manifest, int rank,
                       ShardedModel& model, AdamW& optimizer) {
  ASSIGN_OR_RETURN(const io::SafetensorsFile file, OpenShard(folder, manifest, rank, model));
  const std::vector<model::Unit>& units = model.transformer().table().units();
  std::vector<UnitShard>& shards = model.shards();
  for (size_t u = 0; u < units.size(); ++u) {
    at::Tensor contents[] = {shards[u].master, optimizer.first_moments()[u],
                             optimizer.second_moments()[u]};
    for (int kind = 0; kind < 3; ++kind) {
      ASSIGN_OR_RETURN(const io::TensorView view, file.Find(TensorName(units[u], kind)));
      at::Tensor staged = at::empty({contents[kind].numel()}, at::kFloat);
      std::memcpy(staged.mutable_data_ptr(), view.bytes.data(), view.bytes.size());
      contents[kind].copy_(staged);
    }
  }
  optimizer.set_num_steps(manifest.optimizer_steps);
  model.MastersChanged();
  return absl::OkStatus();
}

}  // namespace tandem::trainer
