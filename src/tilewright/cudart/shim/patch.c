/* Programs with a statically linked CUDA runtime, which is nvcc's default (without `-cudart shared`).
   Preloading a library does not replace its functions. But an executable that is not stripped names
   them in its symbol table. So before the program's own code runs, the first instructions of each
   function that this library implements are overwritten by a jump into the library. */

#define _GNU_SOURCE
#include "shim.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct program { const char *file; size_t size; uintptr_t base; void *library; };

/* Only NVIDIA's runtime requests these tables, so a runtime that could not be patched is running. */
API status cuGetExportTable(const void **out, const void *id) {
  static int told;
  (void)id;
  if (!told++)
    print_error("the CUDA runtime is linked into this program, and its symbols are stripped; link "
                "without -s and strip, or with nvcc -cudart shared");
  *out = 0;
  return NOT_SUPPORTED;
}

#ifdef __x86_64__

enum { JUMP = 12, ALIGN = 16 };

static void redirect(char *from, void *to) { /* mov rax, to; jmp rax */
  uintptr_t page = sysconf(_SC_PAGESIZE);
  char *start = (char *)((uintptr_t)from & -page);
  size_t size = from + JUMP - start;
  char code[JUMP] = {0x48, (char)0xb8, 0, 0, 0, 0, 0, 0, 0, 0, (char)0xff, (char)0xe0};
  memcpy(code + 2, &to, sizeof to);
  if (mprotect(start, size, PROT_READ | PROT_WRITE | PROT_EXEC)) return;
  memcpy(from, code, JUMP);
  mprotect(start, size, PROT_READ | PROT_EXEC);
}

static int room(const Elf64_Sym *s) { return s->st_size >= JUMP || s->st_value % ALIGN == 0; }

static void patch_symbol(const struct program *p, const Elf64_Sym *s, const char *name) {
  if (ELF64_ST_TYPE(s->st_info) != STT_FUNC || !s->st_shndx || !room(s)) return;
  if (strncmp(name, "cuda", 4) && strncmp(name, "__cuda", 6)) return;
  void *served = dlsym(p->library, name);
  if (served) redirect((char *)p->base + s->st_value, served);
}

static void patch(const struct program *p) {
  const Elf64_Ehdr *head = (const void *)p->file;
  const Elf64_Shdr *sections = (const void *)(p->file + head->e_shoff);
  if (memcmp(head, ELFMAG, SELFMAG) || head->e_shoff + head->e_shnum * sizeof *sections > p->size)
    return;
  for (int i = 0; i < head->e_shnum; i++) {
    if (sections[i].sh_type != SHT_SYMTAB) continue;
    const Elf64_Sym *symbols = (const void *)(p->file + sections[i].sh_offset);
    const char *names = p->file + sections[sections[i].sh_link].sh_offset;
    for (size_t k = 0; k < sections[i].sh_size / sizeof *symbols; k++)
      patch_symbol(p, symbols + k, names + symbols[k].st_name);
  }
}

static int base_of(struct dl_phdr_info *info, size_t size, void *p) {
  (void)size;
  ((struct program *)p)->base = info->dlpi_addr;
  return 1; /* the program is the first object */
}

static void __attribute__((constructor)) patch_program(void) {
  struct program p = {0};
  struct stat state;
  Dl_info own;
  int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  if (file < 0 || fstat(file, &state) || !dladdr((void *)patch_program, &own)) return;
  p.size = state.st_size;
  p.file = mmap(0, p.size, PROT_READ, MAP_PRIVATE, file, 0);
  p.library = dlopen(own.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  close(file);
  if (p.file == MAP_FAILED) return;
  dl_iterate_phdr(base_of, &p);
  if (p.library) patch(&p);
  munmap((void *)p.file, p.size);
}

#endif
