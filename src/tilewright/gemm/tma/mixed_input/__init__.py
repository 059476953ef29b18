"""Prepared weights as the left operand of wgmma: their copies and the consumers' mainloop."""
