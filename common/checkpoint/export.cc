#include "common/checkpoint/export.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/io/model_config.h"
#include "common/io/model_folder.h"
#include "common/io/model_folder_writer.h"
#include "common/model/model_spec.h"
#include "common/model/parameter_table.h"
#include "common/model/stored_layout.h"
#include "common/model/stored_writer.h"
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

// Reads the piece's elements in the type of the file.
absl::Status CopyPiece(CheckpointReader& reader, const ModelEntry& model,
                       const model::StoredPiece& piece, io::DType dtype,
                       model::StoredWriter& writer) {
  std::vector<float> elements(static_cast<size_t>(piece.count));
  RETURN_IF_ERROR(reader.Read(model.name, model.tensors[piece.parameter].name, kMasterKind,
                              piece.first, absl::MakeSpan(elements)));
  if (dtype == io::DType::kF32) {
    return writer.Append(piece,
                         absl::MakeConstSpan(reinterpret_cast<const std::byte*>(elements.data()),
                                             elements.size() * sizeof(float)));
  }
  std::vector<uint16_t> narrow(elements.size());
  std::transform(elements.begin(), elements.end(), narrow.begin(), ToBFloat16);
  return writer.Append(piece, absl::MakeConstSpan(reinterpret_cast<const std::byte*>(narrow.data()),
                                                  narrow.size() * sizeof(uint16_t)));
}

// Returns where the folder's family stores the checkpoint's tensors.
absl::StatusOr<model::StoredLayout> LayoutOf(const ModelEntry& entry, const std::string& path,
                                             const io::ModelFolder* folder) {
  std::vector<model::LogicalParameter> parameters;
  bool has_value_head = false;
  for (const LogicalTensor& tensor : entry.tensors) {
    has_value_head |= tensor.name == "score.weight";
  }
  ASSIGN_OR_RETURN(io::ModelConfig config, io::ReadModelConfig(path));
  ASSIGN_OR_RETURN(const model::ModelSpec spec,
                   has_value_head ? model::ParseValueModelSpec(std::move(config.json), config.path)
                                  : model::ParseModelSpec(config.json, config.path));
  absl::flat_hash_set<std::string> in_float32;
  const model::ParameterTable table(spec);
  for (const model::Parameter& parameter : table.parameters()) {
    if (parameter.in_float32) in_float32.insert(parameter.name);
  }
  for (const LogicalTensor& tensor : entry.tensors) {
    parameters.push_back({tensor.name, tensor.shape, in_float32.contains(tensor.name)});
  }
  return model::StoredLayout::Create(spec, std::move(parameters), folder);
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
  const std::string& source_folder =
      options.source_folder.empty() ? manifest.source_folder : options.source_folder;
  const std::optional<io::ModelFolder> opened = model::OpenExportSource(source_folder);
  const io::ModelFolder* const source = opened.has_value() ? &*opened : nullptr;
  const std::string note = absl::StrCat("config.json and the tokenizer are copied from ",
                                        source_folder, "; --source names another folder");
  const auto layout = LayoutOf(*model, source_folder, source);
  RETURN_IF_ERROR(layout.status()) << note;
  io::ModelFolderWriter::Options writer_options;
  writer_options.source_folder = source_folder;
  writer_options.max_shard_bytes = options.max_shard_bytes;
  auto writer =
      model::StoredWriter::Create(options.output, *layout, options.dtype, source, writer_options);
  RETURN_IF_ERROR(writer.status()) << note;
  RETURN_IF_ERROR(
      model::ForStoredPieces(*layout, kPieceElements, [&](const model::StoredPiece& piece) {
        return CopyPiece(reader, *model, piece, layout->DTypeOf(*piece.tensor, options.dtype),
                         *writer);
      }));
  RETURN_IF_ERROR(writer->Commit());
  return ExportReport{manifest.step, manifest.policy_version,
                      static_cast<int64_t>(layout->tensors().size()), writer->size_bytes()};
}

}  // namespace tandem::checkpoint
