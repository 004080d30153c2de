#include "services/trainer/checkpoint/hugging_face_export.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/io/model_folder.h"
#include "common/io/model_folder_writer.h"
#include "common/model/stored_layout.h"
#include "common/model/stored_writer.h"
#include "common/model/torch_dtype.h"
#include "common/status/status_macros.h"
#include "services/trainer/fsdp/shard_layout.h"

namespace tandem::trainer {
namespace {

constexpr int64_t kMaxPieceElements = int64_t{4} << 20;

// The leader's file; keeps the first error and passes over what comes after it.
class Writer {
 public:
  Writer(const model::StoredLayout& layout, const io::ModelFolder* source,
         const HuggingFaceExport& options) {
    io::ModelFolderWriter::Options writer_options;
    writer_options.source_folder = options.source_folder;
    writer_options.replace_model = true;
    auto writer = model::StoredWriter::Create(options.path, layout, model::FileDType(options.dtype),
                                              source, writer_options);
    if (writer.ok()) {
      writer_.emplace(*std::move(writer));
    } else {
      status_ = writer.status();
    }
  }

  void Append(const model::StoredPiece& piece, const at::Tensor& elements) {
    if (!status_.ok()) return;
    const at::Tensor bytes = elements.to(at::kCPU).contiguous();
    const auto size = static_cast<size_t>(bytes.nbytes());
    status_ = writer_->Append(
        piece, absl::MakeConstSpan(static_cast<const std::byte*>(bytes.const_data_ptr()), size));
  }

  ExportResult Finish() {
    if (status_.ok()) status_ = writer_->Commit();
    const int64_t size_bytes = writer_.has_value() ? writer_->size_bytes() : 0;
    writer_.reset();  // an uncommitted one removes what it wrote
    return {status_, size_bytes};
  }

 private:
  std::optional<model::StoredWriter> writer_;
  absl::Status status_;
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

// The collective transfer of one copy of the model to the leader.
class Transfer {
 public:
  Transfer(const ShardLayout& layout, const std::vector<UnitShard>& shards,
           comm::ProcessGroup& group)
      : layout_(layout), shards_(shards), group_(group) {}

  // Sends this rank's elements of [first, first + count) of a parameter, as `dtype`, to the leader.
  absl::Status Send(size_t parameter, int64_t first, int64_t count, at::ScalarType dtype) {
    if (group_.rank() >= layout_.num_ranks()) return absl::OkStatus();
    const auto runs = layout_.RunsOf(group_.rank(), parameter, first, count);
    if (runs.empty()) return absl::OkStatus();
    const at::Tensor packed = Pack(runs, shards_, dtype);
    ASSIGN_OR_RETURN(auto work, group_.Send(packed, 0, layout_.tensor(parameter).name));
    return work->Wait();
  }

  // Returns the same elements, on the leader.
  absl::StatusOr<at::Tensor> Receive(size_t parameter, int64_t first, int64_t count,
                                     at::ScalarType dtype) {
    const at::TensorOptions options = shards_[0].master.options().dtype(dtype);
    Piece piece(first, count, options);
    for (int rank = 0; rank < layout_.num_ranks(); ++rank) {
      const auto runs = layout_.RunsOf(rank, parameter, first, count);
      if (runs.empty()) continue;
      at::Tensor packed;
      if (rank == 0) {
        packed = Pack(runs, shards_, dtype);
      } else {
        packed = at::empty({NumElements(runs)}, options);
        ASSIGN_OR_RETURN(auto work, group_.Receive(packed, rank, layout_.tensor(parameter).name));
        RETURN_IF_ERROR(work->Wait());
      }
      piece.Lay(runs, packed);
    }
    return piece.elements();
  }

 private:
  const ShardLayout& layout_;
  const std::vector<UnitShard>& shards_;
  comm::ProcessGroup& group_;
};

}  // namespace

absl::StatusOr<ExportResult> ExportHuggingFace(ShardedModel& model, const comm::DeviceMesh& mesh,
                                               const HuggingFaceExport& options) {
  // The first copy is the first ranks of the mesh.
  comm::ProcessGroup& group = mesh.world();
  const bool is_leader = group.rank() == 0;
  // The folder's names matter to the leader alone; the order of pieces does not depend on them.
  std::optional<io::ModelFolder> opened;
  if (is_leader) opened = model::OpenExportSource(options.source_folder);
  const io::ModelFolder* const source = opened.has_value() ? &*opened : nullptr;
  ASSIGN_OR_RETURN(const model::StoredLayout stored,
                   model::StoredLayout::Create(model.transformer().table(), source));
  const ShardLayout layout(model.transformer(), mesh.shape());
  Transfer transfer(layout, model.shards(), group);
  std::optional<Writer> writer;
  if (is_leader) writer.emplace(stored, source, options);

  RETURN_IF_ERROR(model::ForStoredPieces(
      stored, kMaxPieceElements, [&](const model::StoredPiece& piece) -> absl::Status {
        const bool in_float32 = stored.parameters()[piece.parameter].in_float32;
        const at::ScalarType dtype = in_float32 ? at::kFloat : options.dtype;
        if (!is_leader) return transfer.Send(piece.parameter, piece.first, piece.count, dtype);
        ASSIGN_OR_RETURN(const at::Tensor elements,
                         transfer.Receive(piece.parameter, piece.first, piece.count, dtype));
        writer->Append(piece, elements);
        return absl::OkStatus();
      }));
  return is_leader ? writer->Finish() : ExportResult{};
}

}  // namespace tandem::trainer
