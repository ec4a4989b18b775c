"""What a store really does, found out by trying it under a scratch prefix.

:mod:`.facts` is light and is all that opening a tier needs; :mod:`.s3_probe` loads boto3.
"""
