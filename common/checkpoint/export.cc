#include "common/checkpoint/export.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/io/model_folder_writer.h"
#include "common/status/status_macros.h"

namespace tandem::checkpoint {
namespace {

constexpr int64_t kPieceElements = int64_t{4} << 20;

// Rounds to the nearest bfloat16, ties to even; any NaN becomes the quiet one.
uint16_t ToBFloat16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return 0x7FC0;
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

absl::Status CopyTensor(CheckpointReader& reader, const std::string& model,
                        const LogicalTensor& tensor, io::DType dtype,
                        io::ModelFolderWriter& writer) {
  const int64_t numel = NumElements(tensor.shape);
  std::vector<float> piece;
  std::vector<uint16_t> narrow;
  for (int64_t first = 0; first < numel; first += kPieceElements) {
    piece.resize(static_cast<size_t>(std::min(kPieceElements, numel - first)));
    RETURN_IF_ERROR(reader.Read(model, tensor.name, kMasterKind, first, absl::MakeSpan(piece)));
    if (dtype == io::DType::kF32) {
      RETURN_IF_ERROR(writer.Append(
          tensor.name, absl::MakeConstSpan(reinterpret_cast<const std::byte*>(piece.data()),
                                           piece.size() * sizeof(float))));
      continue;
    }
    narrow.resize(piece.size());
    std::transform(piece.begin(), piece.end(), narrow.begin(), ToBFloat16);
    RETURN_IF_ERROR(writer.Append(
        tensor.name, absl::MakeConstSpan(reinterpret_cast<const std::byte*>(narrow.data()),
                                         narrow.size() * sizeof(uint16_t))));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ExportReport> ExportCheckpoint(const ExportOptions& options) {
  RETURN_IF_ERROR(io::CheckReplaceable(options.output, nullptr));
  ASSIGN_OR_RETURN(CheckpointReader reader, CheckpointReader::Open(options.checkpoint));
  const Manifest& manifest = reader.manifest();
  const ModelEntry* model = manifest.FindModel(options.model);
  if (model == nullptr) {
    std::vector<std::string> names;
    for (const ModelEntry& entry : manifest.models) names.push_back(entry.name);
    return absl::NotFoundError(absl::StrCat(options.checkpoint, " holds no model \"", options.model,
                                            "\"; it has ", absl::StrJoin(names, ", ")));
  }
  std::vector<io::TensorDeclaration> declarations;
  ExportReport report{manifest.step, manifest.policy_version};
  for (const LogicalTensor& tensor : model->tensors) {
    declarations.push_back({tensor.name, options.dtype, tensor.shape});
    report.size_bytes += NumElements(tensor.shape) * io::SizeOf(options.dtype);
  }
  report.num_tensors = static_cast<int64_t>(declarations.size());
  io::ModelFolderWriter::Options writer_options;
  writer_options.source_folder =
      options.source_folder.empty() ? manifest.source_folder : options.source_folder;
  writer_options.max_shard_bytes = options.max_shard_bytes;
  auto writer =
      io::ModelFolderWriter::Create(options.output, std::move(declarations), writer_options);
  RETURN_IF_ERROR(writer.status())
      << "config.json and the tokenizer are copied from " << writer_options.source_folder
      << "; --source names another folder";
  for (const LogicalTensor& tensor : model->tensors) {
    RETURN_IF_ERROR(CopyTensor(reader, model->name, tensor, options.dtype, *writer));
  }
  RETURN_IF_ERROR(writer->Commit());
  return report;
}

}  // namespace tandem::checkpoint
