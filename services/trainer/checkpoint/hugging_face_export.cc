#include "services/trainer/checkpoint/hugging_face_export.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/io/model_folder_writer.h"
#include "common/model/torch_dtype.h"
#include "common/status/status_macros.h"
#include "services/trainer/fsdp/shard_layout.h"

namespace tandem::trainer {
namespace {

constexpr int64_t kMaxPieceElements = int64_t{4} << 20;

// The leader's file; keeps the first error and passes over what comes after it.
class Writer {
 public:
  Writer(const ShardLayout& layout, const HuggingFaceExport& options) {
    std::vector<io::TensorDeclaration> tensors;
    const io::DType dtype = model::FileDType(options.dtype);
    for (size_t i = 0; i < layout.num_tensors(); ++i) {
      tensors.push_back({layout.tensor(i).name, dtype, layout.tensor(i).global_shape});
    }
    io::ModelFolderWriter::Options writer_options;
    writer_options.source_folder = options.source_folder;
    writer_options.replace_model = true;
    auto writer = io::ModelFolderWriter::Create(options.path, std::move(tensors), writer_options);
    if (writer.ok()) {
      writer_.emplace(*std::move(writer));
    } else {
      status_ = writer.status();
    }
  }

  void Append(const std::string& name, const at::Tensor& piece) {
    if (!status_.ok()) return;
    const at::Tensor bytes = piece.to(at::kCPU).contiguous();
    const auto size = static_cast<size_t>(bytes.nbytes());
    status_ = writer_->Append(
        name, absl::MakeConstSpan(static_cast<const std::byte*>(bytes.const_data_ptr()), size));
    size_bytes_ += static_cast<int64_t>(size);
  }

  ExportResult Finish() {
    if (status_.ok()) status_ = writer_->Commit();
    writer_.reset();  // an uncommitted one removes what it wrote
    return {status_, size_bytes_};
  }

 private:
  std::optional<io::ModelFolderWriter> writer_;
  absl::Status status_;
  int64_t size_bytes_ = 0;
};

// The rank's elements of a piece, one run after another, in the type of the file.
at::Tensor Pack(const std::vector<ShardLayout::Run>& runs, const std::vector<UnitShard>& shards,
                at::ScalarType dtype) {
  std::vector<at::Tensor> parts;
  for (const ShardLayout::Run& run : runs) {
    parts.push_back(shards[run.unit].master.narrow(0, run.shard_offset, run.count));
  }
  return parts.size() == 1 ? parts[0].to(dtype) : at::cat(parts).to(dtype);
}

int64_t NumElements(const std::vector<ShardLayout::Run>& runs) {
  int64_t count = 0;
  for (const ShardLayout::Run& run : runs) count += run.count;
  return count;
}

// Elements [first, ...) of a tensor on the leader, out of what each rank gives.
class Piece {
 public:
  Piece(int64_t first, int64_t count, const at::TensorOptions& options)
      : first_(first), elements_(at::empty({count}, options)) {}

  void Lay(const std::vector<ShardLayout::Run>& runs, const at::Tensor& packed) {
    int64_t at = 0;
    for (const ShardLayout::Run& run : runs) {
      elements_.narrow(0, run.first - first_, run.count).copy_(packed.narrow(0, at, run.count));
      at += run.count;
    }
  }
  const at::Tensor& elements() const { return elements_; }

 private:
  int64_t first_;
  at::Tensor elements_;
};

}  // namespace

absl::StatusOr<ExportResult> ExportHuggingFace(ShardedModel& model, const comm::DeviceMesh& mesh,
                                               const HuggingFaceExport& options) {
  const ShardLayout layout(model.transformer(), mesh.shape());
  const std::vector<UnitShard>& shards = model.shards();
  const at::TensorOptions piece_options = shards[0].master.options().dtype(options.dtype);
  // The first copy is the first ranks of the mesh.
  comm::ProcessGroup& group = mesh.world();
  const bool is_leader = group.rank() == 0;
  std::optional<Writer> writer;
  if (is_leader) writer.emplace(layout, options);

  for (size_t i = 0; i < layout.num_tensors(); ++i) {
    const std::string& name = layout.tensor(i).name;
    const int64_t numel = layout.tensor_numel(i);
    for (int64_t first = 0; first < numel; first += kMaxPieceElements) {
      const int64_t count = std::min(kMaxPieceElements, numel - first);
      if (!is_leader) {
        if (group.rank() >= layout.num_ranks()) continue;
        const auto runs = layout.RunsOf(group.rank(), i, first, count);
        if (runs.empty()) continue;
        ASSIGN_OR_RETURN(auto work, group.Send(Pack(runs, shards, options.dtype), 0, name));
        RETURN_IF_ERROR(work->Wait());
        continue;
      }
      Piece piece(first, count, piece_options);
      for (int rank = 0; rank < layout.num_ranks(); ++rank) {
        const auto runs = layout.RunsOf(rank, i, first, count);
        if (runs.empty()) continue;
        at::Tensor packed;
        if (rank == 0) {
          packed = Pack(runs, shards, options.dtype);
        } else {
          packed = at::empty({NumElements(runs)}, piece_options);
          ASSIGN_OR_RETURN(auto work, group.Receive(packed, rank, name));
          RETURN_IF_ERROR(work->Wait());
        }
        piece.Lay(runs, packed);
      }
      writer->Append(name, piece.elements());
    }
  }
  return is_leader ? writer->Finish() : ExportResult{};
}

}  // namespace tandem::trainer
