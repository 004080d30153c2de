#include "common/checkpoint/checkpoint_reader.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/checkpoint/shard_index.h"
#include "common/status/status_macros.h"

namespace tandem::checkpoint {

absl::StatusOr<CheckpointReader> CheckpointReader::Open(const std::string& folder) {
  CheckpointReader out;
  out.folder_ = folder;
  ASSIGN_OR_RETURN(out.manifest_, ReadManifest(folder));
  for (const std::string& shard : out.manifest_.shards) {
    const std::string index_name = shard + ".json";
    ASSIGN_OR_RETURN(const std::string text, ReadSideFile(folder, index_name, out.manifest_));
    ASSIGN_OR_RETURN(ShardIndex index, ParseIndex(text, absl::StrCat(folder, "/", index_name)));
    absl::StatusOr<BlockFileReader> file =
        BlockFileReader::Open(absl::StrCat(folder, "/", index.data_file), std::move(index.digests));
    if (absl::IsNotFound(file.status())) {
      return absl::DataLossError(
          absl::StrCat(folder, "/", index.data_file, " is missing; use another checkpoint"));
    }
    RETURN_IF_ERROR(file.status());
    for (StoredRun& stored : index.runs) {
      Key key(stored.model, stored.run.tensor, stored.kind);
      out.sources_[std::move(key)].push_back({out.files_.size(), std::move(stored.run)});
    }
    out.files_.push_back(*std::move(file));
  }
  RETURN_IF_ERROR(out.CheckCoverage());
  return out;
}

absl::Status CheckpointReader::CheckCoverage() const {
  for (const ModelEntry& model : manifest_.models) {
    for (const LogicalTensor& tensor : model.tensors) {
      for (const std::string& kind : model.kinds) {
        int64_t stored = 0;
        if (const auto found = sources_.find({model.name, tensor.name, kind});
            found != sources_.end()) {
          for (const Source& source : found->second) {
            if (source.run.shape != tensor.shape) {
              return absl::DataLossError(
                  absl::StrFormat("%s: %s and manifest.json have different shapes for %s %s; use "
                                  "another checkpoint",
                                  folder_, files_[source.file].path(), model.name, tensor.name));
            }
            stored += source.run.count;
          }
        }
        const int64_t expected = tensor.HasKind(kind) ? NumElements(tensor.shape) : 0;
        if (stored != expected) {
          return absl::DataLossError(
              absl::StrFormat("%s: the ranks' files hold %d elements of %s %s (%s), expected %d; "
                              "use another checkpoint",
                              folder_, stored, model.name, tensor.name, kind, expected));
        }
      }
    }
  }
  return absl::OkStatus();
}

absl::Status CheckpointReader::Read(const std::string& model, const std::string& tensor,
                                    const std::string& kind, int64_t first, absl::Span<float> out) {
  const auto found = sources_.find({model, tensor, kind});
  if (found == sources_.end()) {
    return absl::NotFoundError(
        absl::StrFormat("%s holds no %s of %s %s", folder_, kind, model, tensor));
  }
  const auto count = static_cast<int64_t>(out.size());
  int64_t num_read = 0;
  absl::Status status;
  for (const Source& source : found->second) {
    Intersect(source.run, first, count, [&](int64_t begin, int64_t length, int64_t in_run) {
      if (!status.ok()) return;
      absl::Span<float> to = out.subspan(static_cast<size_t>(begin - first), length);
      status = files_[source.file].Read(
          (source.run.offset + in_run) * static_cast<int64_t>(sizeof(float)),
          absl::MakeSpan(reinterpret_cast<std::byte*>(to.data()), to.size() * sizeof(float)));
      num_read += length;
    });
    RETURN_IF_ERROR(status) << "while reading " << model << " " << tensor << " (" << kind << ")";
  }
  if (num_read != count) {
    return absl::DataLossError(absl::StrFormat(
        "%s: expected elements %d to %d of %s %s (%s), found only %d in the ranks' files; "
        "use another checkpoint",
        folder_, first, first + count, model, tensor, kind, num_read));
  }
  return absl::OkStatus();
}

absl::Status CheckpointReader::ReadRun(const std::string& model, const std::string& kind,
                                       const Run& run, absl::Span<float> out) {
  absl::Status status;
  ForEachStretch(run, [&](int64_t first, int64_t count, int64_t in_run) {
    if (!status.ok()) return;
    status = Read(model, run.tensor, kind, first,
                  out.subspan(static_cast<size_t>(in_run), static_cast<size_t>(count)));
  });
  return status;
}

}  // namespace tandem::checkpoint
