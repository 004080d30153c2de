// Tests that measure memory, or look at the allocator, say nothing of a program whose memory a
// sanitizer keeps.
#ifndef TANDEM_TESTS_SUPPORT_SANITIZER_H_
#define TANDEM_TESTS_SUPPORT_SANITIZER_H_

namespace tandem::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitizerKeepsMemory = true;
#else
inline constexpr bool kSanitizerKeepsMemory = false;
#endif

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_SUPPORT_SANITIZER_H_
