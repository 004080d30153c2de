#include "common/model/gather_rows.h"

#include <ATen/ops/index_select.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <cstring>

#include "common/model/cpu_dispatch.h"
#include "common/model/step_memory.h"

namespace tandem::model {

at::Tensor GatherRows(const at::Tensor& matrix, const at::Tensor& rows) {
  if (!matrix.is_cpu()) return at::index_select(matrix, 0, rows);
  const int64_t* const row = rows.const_data_ptr<int64_t>();
  const int64_t count = rows.numel();
  for (int64_t i = 0; i < count; ++i) {
    TORCH_CHECK_INDEX(row[i] >= 0 && row[i] < matrix.size(0), "row ", row[i], " of ",
                      matrix.size(0));
  }
  at::Tensor out = EmptyTensor({count, matrix.size(1)}, matrix.options());
  const size_t bytes = matrix.size(1) * matrix.element_size();
  const char* const from = static_cast<const char*>(matrix.const_data_ptr());
  char* const to = static_cast<char*>(out.mutable_data_ptr());
  ForRows(count, matrix.size(1), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) std::memcpy(to + i * bytes, from + row[i] * bytes, bytes);
  });
  return out;
}

}  // namespace tandem::model
