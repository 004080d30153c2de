// What tests/parity/algorithm_golden.py wrote: the formulas as PyTorch computes them in float64.
#ifndef TANDEM_TESTS_SERVICES_TRAINER_ALGORITHM_GOLDEN_H_
#define TANDEM_TESTS_SERVICES_TRAINER_ALGORITHM_GOLDEN_H_

#include <ATen/ATen.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/io/read_file.h"

namespace tandem::trainer {

inline nlohmann::json ReadGolden() {
  const char* source = std::getenv("TANDEM_SOURCE");
  auto json = io::ReadJsonFile(std::string(source == nullptr ? "." : source) +
                               "/tests/services/trainer/algorithm/golden.json");
  if (!json.ok()) throw std::runtime_error(json.status().ToString());
  return *json;
}

inline at::Tensor Vector(const nlohmann::json& values) {
  return at::tensor(values.get<std::vector<double>>(), at::kDouble);
}

inline at::Tensor Matrix(const nlohmann::json& rows) {
  std::vector<at::Tensor> out;
  for (const nlohmann::json& row : rows) out.push_back(Vector(row));
  return at::stack(out);
}

// Largest absolute difference.
inline double Difference(const at::Tensor& a, const at::Tensor& b) {
  return (a.detach() - b).abs().max().item<double>();
}

}  // namespace tandem::trainer

#endif  // TANDEM_TESTS_SERVICES_TRAINER_ALGORITHM_GOLDEN_H_
