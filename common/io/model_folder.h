// A Hugging Face model folder: config.json and one or many safetensors files.
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
// threads. Opening costs the headers, not the weights. Views are valid while the folder is open.
class ModelFolder {
 public:
  // model.safetensors where it is there, else the files of model.safetensors.index.json. NOT_FOUND
  // names the missing file (of how many, and who asks for it) or the tensor that its file lacks;
  // DATA_LOSS names the damaged file and tensor. Tensors that the index does not list are ignored.
  // For folders without weights there is ReadModelConfig().
  static absl::StatusOr<ModelFolder> Open(const std::string& path);

  ModelFolder(ModelFolder&&) = default;
  ModelFolder& operator=(ModelFolder&&) = default;

  const std::string& path() const { return path_; }
  const ModelConfig& config() const { return config_; }

  // File by file, in the order of their data.
  const std::vector<std::string>& names() const { return names_; }

  // A file's metadata may say that one name shares another's data ({"model.embed_tokens.weight":
  // "lm_head.weight"}, for tied weights): such names are found too, though names() lists only what
  // is stored; the view then bears the stored name. NOT_FOUND otherwise.
  absl::StatusOr<TensorView> Find(absl::string_view name) const;
  bool Contains(absl::string_view name) const { return index_.contains(name); }

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
