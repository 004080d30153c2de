// What the usage examples in common/io leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_COMMON_IO_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_COMMON_IO_H_

#include <vector>

#include "nlohmann/json.hpp"

namespace tandem::io::atomic_file_example {
extern std::string text;
struct Piece {
  std::string bytes;
};
extern std::vector<Piece> pieces;
}  // namespace tandem::io::atomic_file_example

namespace tandem::io::atomic_folder_example {
extern std::string text;
}  // namespace tandem::io::atomic_folder_example

namespace tandem::io::json_fields_example {
extern nlohmann::json config;
}  // namespace tandem::io::json_fields_example

namespace tandem::io::json_text_example {
extern nlohmann::json line;
}  // namespace tandem::io::json_text_example

namespace tandem::io::json_values_example {
extern nlohmann::json event;
}  // namespace tandem::io::json_values_example

namespace tandem::io::jsonl_example {
extern std::vector<std::string> prompts;
}  // namespace tandem::io::jsonl_example

namespace tandem::io::model_folder_writer_example {
extern std::string base_model;
extern std::vector<TensorDeclaration> declarations;
struct Piece {
  std::string tensor;
  absl::Span<const std::byte> bytes;
};
extern std::vector<Piece> pieces;
}  // namespace tandem::io::model_folder_writer_example

namespace tandem::io::ordered_json_example {
extern std::string line;
}  // namespace tandem::io::ordered_json_example

namespace tandem::io::parse_json_example {
extern std::string line;
}  // namespace tandem::io::parse_json_example

namespace tandem::io::safetensors_example {
inline constexpr header_examples::AnyFunction Use;
}  // namespace tandem::io::safetensors_example

namespace tandem::io::safetensors_writer_example {
extern std::vector<TensorDeclaration> declarations;
struct Piece {
  std::string tensor;
  absl::Span<const std::byte> bytes;
};
extern std::vector<Piece> pieces;
}  // namespace tandem::io::safetensors_writer_example

namespace tandem::io::whole_lines_example {
extern std::string path;
extern int64_t offset;
extern std::vector<std::string> lines;
}  // namespace tandem::io::whole_lines_example

namespace tandem::io::space_reserve_example {
extern int64_t model_bytes;
}  // namespace tandem::io::space_reserve_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_COMMON_IO_H_
