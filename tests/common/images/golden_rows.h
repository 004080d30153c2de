// What tests/parity/image_golden.py wrote.
#ifndef TANDEM_TESTS_COMMON_IMAGES_GOLDEN_ROWS_H_
#define TANDEM_TESTS_COMMON_IMAGES_GOLDEN_ROWS_H_

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tandem::images {

inline std::string GoldenPath(const std::string& name) {
  const char* source = std::getenv("TANDEM_SOURCE");
  return std::string(source != nullptr ? source : ".") + "/tests/common/images/golden/" + name;
}

inline std::vector<nlohmann::json> GoldenRows(const std::string& name) {
  std::ifstream in(GoldenPath(name));
  std::vector<nlohmann::json> rows;
  for (std::string line; std::getline(in, line);) rows.push_back(nlohmann::json::parse(line));
  return rows;
}

inline std::string GoldenFile(const std::string& name) {
  std::ifstream in(GoldenPath("files/" + name), std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

}  // namespace tandem::images

#endif  // TANDEM_TESTS_COMMON_IMAGES_GOLDEN_ROWS_H_
