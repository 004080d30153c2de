// A Hugging Face model folder: config.json and one or more safetensors files.
//
//   ASSIGN_OR_RETURN(io::ModelFolder folder, io::ModelFolder::Open("/models/qwen"));
//   ASSIGN_OR_RETURN(int64_t layers, folder.config().fields().Int("num_hidden_layers"));
//   ASSIGN_OR_RETURN(io::TensorView embedding, folder.Find("model.embed_tokens.weight"));
#ifndef TANDEM_COMMON_IO_MODEL_FOLDER_H_
#define TANDEM_COMMON_IO_MODEL_FOLDER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/io/model_config.h"
#include "common/io/safetensors.h"

namespace tandem::io {

// The folder, with every weight file mapped and checked; move-only, readable from any number of
// threads. Opening reads the headers, not the weights. Views are valid while the folder is open.
class ModelFolder {
 public:
  // Opens model.safetensors if it exists, else the files of model.safetensors.index.json. NOT_FOUND
  // names the missing file (and of how many, and what lists it) or the tensor that its file lacks;
  // DATA_LOSS names the damaged file and tensor. Ignores tensors that the index does not list. For
  // folders without weights use ReadModelConfig().
  static absl::StatusOr<ModelFolder> Open(const std::string& path);

  ModelFolder(ModelFolder&&) = default;
  ModelFolder& operator=(ModelFolder&&) = default;

  const std::string& path() const { return path_; }
  const ModelConfig& config() const { return config_; }

  // Names file by file, in the order of their data.
  const std::vector<std::string>& names() const { return names_; }

  // Finds a stored tensor, or an alias: a file's metadata may map a name to another one that holds
  // its data ({"model.embed_tokens.weight": "lm_head.weight"}, for tied weights). names() lists
  // stored names only, and the view of an alias has the stored name. NOT_FOUND otherwise.
  absl::StatusOr<TensorView> Find(absl::string_view name) const;
  bool Contains(absl::string_view name) const { return index_.contains(name); }

  // The path of the file that holds a tensor; that of the folder for a name that Find() does not
  // find.
  const std::string& FileOf(absl::string_view name) const;

  // Bytes of all tensors.
  int64_t size_bytes() const { return size_bytes_; }
  bool HasTokenizer() const;

 private:
  struct Location {
    size_t file;
    size_t tensor;
  };

  ModelFolder() = default;
  absl::Status OpenSharded(const std::string& index_path);
  void AddTensor(size_t file, size_t tensor);
  void AddAliases();

  std::string path_;
  ModelConfig config_;
  std::vector<SafetensorsFile> files_;
  std::vector<std::string> names_;
  absl::flat_hash_map<std::string, Location> index_;
  int64_t size_bytes_ = 0;
};

}  // namespace tandem::io

#endif  // TANDEM_COMMON_IO_MODEL_FOLDER_H_
