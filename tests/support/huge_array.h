// HugeArray: more elements than 32-bit indices reach, of which only what is touched takes memory.
//
//   HugeArray<float> array(int64_t{1} << 32);
//   array.data()[(int64_t{1} << 32) - 1] = 1.0f;   // one page
#ifndef TANDEM_TESTS_SUPPORT_HUGE_ARRAY_H_
#define TANDEM_TESTS_SUPPORT_HUGE_ARRAY_H_

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>

namespace tandem::testing {

// Zeros at first.
template <typename T>
class HugeArray {
 public:
  explicit HugeArray(int64_t size) : bytes_(static_cast<size_t>(size) * sizeof(T)) {
    void* const data = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) std::abort();
    data_ = static_cast<T*>(data);
  }
  ~HugeArray() { munmap(data_, bytes_); }
  HugeArray(const HugeArray&) = delete;
  HugeArray& operator=(const HugeArray&) = delete;

  T* data() const { return data_; }

 private:
  const size_t bytes_;
  T* data_;
};

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_SUPPORT_HUGE_ARRAY_H_
