// The manifest of a checkpoint: what was saved, of which models, and the digests of the other
// files. See format.md.
#ifndef TANDEM_COMMON_CHECKPOINT_MANIFEST_H_
#define TANDEM_COMMON_CHECKPOINT_MANIFEST_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/io/atomic_folder.h"
#include "common/io/json_fields.h"

namespace tandem::checkpoint {

// The kind that every tensor has; the others are the optimizer's state.
inline constexpr char kMasterKind[] = "master";

struct LogicalTensor {
  std::string name;
  std::vector<int64_t> shape;
  bool trainable = true;  // a frozen tensor has no optimizer state
  // The kinds of its own optimizer state, if the optimizer treats tensors differently; empty: all
  // kinds of the model.
  std::vector<std::string> state_kinds;

  // Whether values of `kind`, one of the model's, are stored for it.
  bool HasKind(const std::string& kind) const;
  // Those of the model's `kinds` that are its optimizer state.
  std::vector<std::string> StateKinds(const std::vector<std::string>& kinds) const;
};

// A model with its optimizer.
struct ModelEntry {
  std::string name;  // "policy", "critic"
  std::string architecture;
  // Kinds of stored values: kMasterKind, "exp_avg", ...; each trainable tensor has all of them, or
  // those that its state_kinds name; a frozen one has the first.
  std::vector<std::string> kinds;
  int64_t optimizer_steps = 0;
  std::vector<LogicalTensor> tensors;  // in canonical order
};

struct FileEntry {
  std::string name;
  int64_t size_bytes = 0;
  std::string digest;
};

// Files that every checkpoint has besides the ranks' files.
inline constexpr char kManifestFile[] = "manifest.json";
inline constexpr char kDriverStateFile[] = "driver_state.pb";
inline constexpr char kLastResponseFile[] = "last_response.pb";

// A folder whose manifest marks it as a checkpoint, of any version; a new checkpoint may replace
// it.
extern const io::FolderKind kCheckpointFolder;

struct Manifest {
  int64_t step = 0;
  int64_t policy_version = 0;
  std::string source_folder;              // where config.json and the tokenizer's files are
  std::map<std::string, double> scalars;  // algorithm state by name
  std::vector<ModelEntry> models;
  std::vector<std::string> shards;  // names of the ranks' files, without extension
  std::vector<FileEntry> files;     // all but the manifest and the ranks' data (indexes cover it)

  // Null if the checkpoint has no such model.
  const ModelEntry* FindModel(const std::string& name) const;
};

// CheckShape() and CheckFileName() check values of a manifest or an index; INVALID_ARGUMENT with
// the field's place. A shape must have no negative dimensions and fewer than 2^60 elements, rows
// and columns. Returns the number of elements.
absl::StatusOr<int64_t> CheckShape(const io::JsonFields& fields, const std::string& key,
                                   const std::vector<int64_t>& shape);
// A file name must be in the same folder: no path, and not hidden.
absl::Status CheckFileName(const io::JsonFields& fields, const std::string& key,
                           const std::string& name);

// Makes the entry for an existing file.
absl::StatusOr<FileEntry> DescribeFile(const std::string& folder, const std::string& name);

// Writes a file into the folder and records it in the manifest.
absl::Status WriteSideFile(const std::string& folder, const std::string& name,
                           const std::string& bytes, Manifest& manifest);

absl::Status WriteManifest(const std::string& folder, const Manifest& manifest);

// NOT_FOUND if there is no manifest, INVALID_ARGUMENT if it is not ours, DATA_LOSS if it is
// damaged; with the file and key.
absl::StatusOr<Manifest> ReadManifest(const std::string& folder);

// Reads a file that the manifest lists. DATA_LOSS if it is not what was written, or if the manifest
// does not list it.
absl::StatusOr<std::string> ReadSideFile(const std::string& folder, const std::string& name,
                                         const Manifest& manifest);

// How a checkpoint's tensors differ from the wanted ones.
struct TensorMismatch {
  std::vector<std::string> missing;
  std::vector<std::string> unexpected;
  struct Shape {
    std::string name, expected, found;
  };
  std::vector<Shape> misshapen;

  bool empty() const { return missing.empty() && unexpected.empty() && misshapen.empty(); }
  // "2 tensors missing: a, b; 1 unexpected: c"; lists the first few of each kind.
  std::string ToString() const;
};

// Compares names and shapes.
TensorMismatch CompareTensors(const std::vector<LogicalTensor>& wanted,
                              const std::vector<LogicalTensor>& found);

}  // namespace tandem::checkpoint

#endif  // TANDEM_COMMON_CHECKPOINT_MANIFEST_H_
