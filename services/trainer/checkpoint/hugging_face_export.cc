#include "services/trainer/checkpoint/hugging_face_export.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/io/model_folder_writer.h"
#include "common/model/parameter_table.h"
#include "common/status/status_macros.h"

namespace tandem::trainer {
namespace {

constexpr int64_t kMaxPieceElements = int64_t{4} << 20;

// The leader's file; keeps the first error and passes over what comes after it.
class Writer {
 public:
  Writer(const model::ParameterTable& table, const HuggingFaceExport& options) {
    std::vector<io::TensorDeclaration> tensors;
    const io::DType dtype = options.dtype == at::kBFloat16 ? io::DType::kBF16 : io::DType::kF32;
    for (model::ParameterTable::SegmentRef ref : table.segments()) {
      const model::Segment& segment = table.segment(ref);
      tensors.push_back({segment.name, dtype, segment.shape});
    }
    io::ModelFolderWriter::Options writer_options;
    writer_options.source_folder = options.source_folder;
    writer_options.if_present = io::AtomicFolder::kReplace;
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

}  // namespace

absl::StatusOr<ExportResult> ExportHuggingFace(ShardedModel& model, comm::ProcessGroup& group,
                                               const HuggingFaceExport& options) {
  const model::ParameterTable& table = model.transformer().table();
  std::vector<UnitShard>& shards = model.shards();
  const bool is_leader = group.rank() == 0;
  std::optional<Writer> writer;
  if (is_leader) writer.emplace(table, options);

  for (model::ParameterTable::SegmentRef ref : table.segments()) {
    const model::Segment& segment = table.segment(ref);
    const UnitShard& shard = shards[table.parameter(ref.parameter).unit];
    const int64_t shard_numel = shard.padded_numel / group.size();
    const int64_t segment_end = segment.offset + segment.numel;
    for (int64_t begin = segment.offset; begin < segment_end;) {
      const int owner = static_cast<int>(begin / shard_numel);
      const int64_t end =
          std::min({segment_end, (owner + 1) * shard_numel, begin + kMaxPieceElements});
      const bool is_owner = owner == group.rank();
      at::Tensor piece;
      if (is_owner) {
        piece = shard.master.narrow(0, begin - shard.offset, end - begin).to(options.dtype);
        piece = piece.contiguous();
        if (!is_leader) {
          ASSIGN_OR_RETURN(auto work, group.Send(piece, 0, segment.name));
          RETURN_IF_ERROR(work->Wait());
        }
      } else if (is_leader) {
        piece = at::empty({end - begin}, shard.master.options().dtype(options.dtype));
        ASSIGN_OR_RETURN(auto work, group.Receive(piece, owner, segment.name));
        RETURN_IF_ERROR(work->Wait());
      }
      if (is_leader) writer->Append(segment.name, piece);
      begin = end;
    }
  }
  return is_leader ? writer->Finish() : ExportResult{};
}

}  // namespace tandem::trainer
