// A checkpoint's manifest, the index of a rank, and the data file: manifest and index as text, then
// bytes, with a zero byte between them. Where they are JSON objects their digests and sizes are put
// right, as one who forges a checkpoint would, so that what comes after those checks is reached.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/checkpoint/checkpoint_reader.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/shard_index.h"
#include "common/hash/hasher.h"
#include "tests/fuzz/input_folder.h"

namespace {

using nlohmann::json;

constexpr char kIndex[] = "rank-0-of-1.json";
constexpr size_t kMaxBlocks = 4096;
constexpr int64_t kMaxElements = 1 << 16;

std::string Mended(const std::string& index, const std::string& data) {
  json parsed = json::parse(index, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object()) return index;
  parsed["data_file"] = "rank-0-of-1.bin";
  parsed["size_bytes"] = data.size();
  const auto block = parsed.find("block_bytes");
  if (block == parsed.end() || !block->is_number_integer()) return parsed.dump();
  const auto block_bytes = block->get<int64_t>();
  if (block_bytes <= 0 || data.size() / static_cast<size_t>(block_bytes) > kMaxBlocks) {
    return parsed.dump();
  }
  std::vector<std::string> digests;
  for (size_t begin = 0; begin < data.size(); begin += static_cast<size_t>(block_bytes)) {
    digests.push_back(
        tandem::hash::HexDigest(data.substr(begin, static_cast<size_t>(block_bytes))));
  }
  parsed["block_digests"] = digests;
  return parsed.dump();
}

std::string MendedManifest(const std::string& manifest, const std::string& index) {
  json parsed = json::parse(manifest, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object()) return manifest;
  parsed["format"] = "tandem-checkpoint";
  parsed["format_version"] = 2;
  if (const auto files = parsed.find("files"); files != parsed.end() && files->is_array()) {
    for (json& file : *files) {
      if (!file.is_object() || !file.contains("name") || file["name"] != kIndex) continue;
      file["size_bytes"] = index.size();
      file["digest"] = tandem::hash::HexDigest(index);
    }
  }
  parsed.erase("digest");
  parsed["digest"] = tandem::hash::HexDigest(parsed.dump());
  return parsed.dump();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace tandem::checkpoint;  // NOLINT: the readers
  static tandem::fuzz::InputFolder folder;
  const auto write = [](const std::string& name, const std::string& text) {
    folder.Write(name, reinterpret_cast<const uint8_t*>(text.data()), text.size());
  };
  const std::string input(reinterpret_cast<const char*>(bytes), size);
  // As it is.
  write(kManifestFile, input);
  (void)ReadManifest(folder.path());
  (void)ParseIndex(input, "index");

  const size_t first = input.find('\0');
  if (first == std::string::npos) return 0;
  const size_t second = std::min(input.find('\0', first + 1), size);
  const std::string data = second < size ? input.substr(second + 1) : "";
  const std::string index = Mended(input.substr(first + 1, second - first - 1), data);
  write("rank-0-of-1.bin", data);
  write(kIndex, index);
  write(kManifestFile, MendedManifest(input.substr(0, first), index));
  auto reader = CheckpointReader::Open(folder.path());
  if (!reader.ok()) return 0;
  for (const ModelEntry& model : reader->manifest().models) {
    (void)CompareTensors(model.tensors, {{"a", {2}}, {"b", {}}}).ToString();
    for (const LogicalTensor& tensor : model.tensors) {
      for (const std::string& kind : model.kinds) {
        std::vector<float> out(
            static_cast<size_t>(std::min(NumElements(tensor.shape), kMaxElements)));
        (void)reader->Read(model.name, tensor.name, kind, 0, absl::MakeSpan(out));
      }
    }
  }
  return 0;
}
