#include "common/sharding/matrix_exchange.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

namespace tandem::sharding {
namespace {

// Multiplications of a Newton-Schulz step, up to a factor.
double WorkOf(const model::HiddenMatrix& matrix) {
  return static_cast<double>(matrix.numel()) *
         static_cast<double>(std::min(matrix.rows, matrix.columns));
}

std::vector<int> ChooseOwners(absl::Span<const model::HiddenMatrix> matrices,
                              std::vector<double>& loads) {
  std::vector<size_t> order(matrices.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return WorkOf(matrices[a]) > WorkOf(matrices[b]); });
  std::vector<int> owners(matrices.size());
  std::vector<double> of_unit(loads.size(), 0.0);
  for (const size_t m : order) {
    size_t least = 0;
    for (size_t r = 1; r < loads.size(); ++r) {
      if (std::pair(of_unit[r], loads[r]) < std::pair(of_unit[least], loads[least])) least = r;
    }
    owners[m] = static_cast<int>(least);
    of_unit[least] += WorkOf(matrices[m]);
    loads[least] += WorkOf(matrices[m]);
  }
  return owners;
}

}  // namespace

MatrixExchange PlanMatrixExchange(absl::Span<const model::HiddenMatrix> matrices, int64_t owned,
                                  int num_ranks, std::vector<double>& loads) {
  MatrixExchange out;
  out.owners = ChooseOwners(matrices, loads);
  std::vector<int64_t> filled(static_cast<size_t>(num_ranks) * static_cast<size_t>(num_ranks), 0);
  for (size_t m = 0; m < matrices.size(); ++m) {
    const int64_t begin = matrices[m].offset;
    const int64_t end = begin + matrices[m].numel();
    for (int64_t sender = begin / owned; sender < num_ranks && sender * owned < end; ++sender) {
      const int64_t first = std::max(begin, sender * owned);
      const int64_t last = std::min(end, (sender + 1) * owned);
      int64_t& in_slice = filled[static_cast<size_t>(sender * num_ranks + out.owners[m])];
      out.pieces.push_back({static_cast<int>(m), static_cast<int>(sender), first - sender * owned,
                            first - begin, in_slice, last - first});
      in_slice += last - first;
      out.slice = std::max(out.slice, in_slice);
    }
  }
  return out;
}

}  // namespace tandem::sharding
